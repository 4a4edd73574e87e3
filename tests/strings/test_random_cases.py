"""Random losses, sums and scales, on strings and on lattices, against enumeration.

10,000 cases in the slow suite, a few of them always.
"""

import functools

import numpy as np
import pytest

import fstgrad as fg
from tests.lattices.random_lattice import RandomLattice
from tests.oracles import losses as alignments
from tests.oracles import strings as oracle
from tests.strings.test_exact import make_loss

ABC = fg.Alphabet("abc")
TROPICAL = ["edit", "factored", "confusion", "smith-waterman", "osa", "lcs", "affine", "local"]
EXACT = ["hamming", "matrix", "wer", "none", "exact"]
KERNELS = ["ngram", "ngram-smooth", "ngram-linear", "ngram-sum", "gappy", "mismatch"]
KINDS = [*TROPICAL, *EXACT, *KERNELS]
CHUNK = 250


def random_part(kind, rng, target):
    """A loss of this kind with random costs, and its oracle."""
    if kind == "osa":
        insert, delete, substitute, transpose = rng.integers(1, 9, size=4) / 4
        return fg.OptimalStringAlignment(
            ABC, insert, delete, substitute, transpose
        ), lambda y: alignments.string_alignment(y, target, insert, delete, substitute, transpose)
    if kind == "lcs":
        return fg.LongestCommonSubsequence(
            ABC
        ), lambda y: len(target) - alignments.longest_common_subsequence(y, target)
    if kind == "affine":
        matrix = rng.integers(-4, 5, size=(3, 3)) / 2
        opening, extending = sorted(rng.integers(0, 9, size=2) / 4, reverse=True)
        loss = fg.GlobalAlignment(ABC, matrix, opening, extending)
        return loss, lambda y: alignments.affine_cost(
            y, target, -matrix, gap_open=opening, gap_extend=extending
        )
    if kind == "local":
        matrix = rng.integers(-4, 5, size=(3, 3)) / 2
        opening, extending = sorted(rng.integers(1, 9, size=2) / 4, reverse=True)
        loss = fg.SmithWaterman(ABC, matrix=matrix, gap_open=opening, gap_extend=extending)
        cost = functools.lru_cache(None)(
            functools.partial(
                alignments.affine_cost, costs=-matrix, gap_open=opening, gap_extend=extending
            )
        )
        return loss, lambda y: min(
            cost(u, v) for u in alignments.factors(y) for v in alignments.factors(target)
        )
    if kind == "none":
        return fg.NoLoss(ABC), lambda y: 0.0
    if kind == "exact":
        return fg.ExactMatch(ABC), lambda y: 0.0 if tuple(y) == target else np.inf
    if kind == "matrix":
        table = rng.integers(0, 8, size=(3, 3)) / 4
        return (
            fg.Hamming(ABC, table),
            lambda y: (
                sum(table[pair] for pair in zip(y, target, strict=True))
                if len(y) == len(target)
                else np.inf
            ),
        )
    if kind == "wer":
        insert, delete, substitute = rng.integers(1, 9, size=3) / 4
        return (
            fg.WordErrorRate(ABC, insert, delete, substitute),
            lambda y: (
                oracle.edit_distance(y, target, insert=insert, delete=delete, substitute=substitute)
                / len(target)
            ),
        )
    if kind in ("ngram-sum", "gappy", "mismatch"):
        return random_kernel(kind, rng, target)
    return make_loss(kind, rng, ABC, target)


def random_kernel(kind, rng, target):
    """A kernel of n-grams up to 2, smoothed, and its oracle."""
    order, smoothing = int(rng.integers(1, 3)), float(rng.choice([0.5, 1.0]))
    if kind == "ngram-sum":
        weights = rng.integers(1, 4, size=order) / 2
        loss = fg.NGramSum(ABC, order, weights, smoothing=smoothing)
        return loss, lambda y: -np.log(alignments.ngram_sum(y, target, weights) + smoothing)
    if kind == "gappy":
        loss = fg.GappyNGram(ABC, order, 0.5, smoothing=smoothing)
        return loss, lambda y: -np.log(alignments.gappy_kernel(y, target, order, 0.5) + smoothing)
    loss = fg.MismatchNGram(ABC, order, order - 1, smoothing=smoothing)
    return (
        loss,
        lambda y: -np.log(alignments.mismatch_kernel(y, target, order, order - 1, 3) + smoothing),
    )


def random_loss(rng, target, *, collapsed=None):
    """One to three parts, each with a scale of its own, and the oracle of their sum.

    collapsed : how the strings collapse before they are compared, with the last symbol as blank.
    """
    names = rng.choice(KINDS, size=int(rng.choice([1, 1, 2, 3])))
    if collapsed and not set(names) <= {*TROPICAL, *EXACT}:
        names = names[:1]  # a sum with a rational loss is collapsed part by part
    parts = [random_part(str(name), rng, target) for name in names]
    factors = rng.choice([1.0, 0.5, 3.0, 0.1, 1 / 3], size=len(parts))
    loss = None
    for (part, _), factor in zip(parts, factors, strict=True):
        scaled = part if factor == 1.0 else float(factor) * part
        loss = scaled if loss is None else loss + scaled

    def by_hand(y):
        return sum(f * oracle_of(y) for f, (_, oracle_of) in zip(factors, parts, strict=True))

    if collapsed is None:
        return loss, by_hand

    def of_latent(z):
        y = alignments.collapse(z, collapsed)
        return np.inf if y is None else by_hand(y) if y else empty_loss(loss, target)

    return fg.CollapsedLoss(loss, ABC, collapse=collapsed, blank="c"), of_latent


def check_strings(seed):
    """Losses, log Z, marginals, all objectives, bands and caps of one case."""
    rng = np.random.default_rng(seed)
    length = int(rng.integers(1, 4))
    collapsed = str(rng.choice(["blank", "ctc", "end"])) if rng.random() < 0.2 else None
    symbols = 2 if collapsed else 3
    target = tuple(int(i) for i in rng.integers(symbols, size=int(rng.integers(1, 4))))
    loss, by_hand = random_loss(rng, target, collapsed=collapsed)
    strings = oracle.all_strings(3, length)
    losses = np.array([by_hand(y) for y in strings])
    ids, gold = np.array(strings), np.array(target)
    np.testing.assert_allclose(
        loss.matrix(list(ids), [gold])[:, 0], losses, atol=1e-9, err_msg=f"seed {seed}"
    )
    if not (losses < np.inf).any():
        return
    order = int(rng.integers(1, 3))
    scores = float(rng.choice([0.1, 1.0, 30.0])) * rng.normal(size=(length, *(4,) * (order - 1), 3))
    b = loss.compile(gold, length)
    np.testing.assert_allclose(b.losses_of(ids), losses, atol=1e-9, err_msg=f"seed {seed}")
    d = fg.StringDistribution(scores, b)
    weights = oracle.log_weights(scores, None) + np.where(losses < np.inf, losses, -np.inf)
    log_z = np.logaddexp.reduce(weights)
    assert d.log_partition() == pytest.approx(log_z, rel=1e-10, abs=1e-9), seed
    table = np.array([oracle.parts(y, scores) for y in strings])
    expected = np.tensordot(np.exp(weights - log_z), table, axes=1)
    np.testing.assert_allclose(d.marginals(), expected, atol=1e-8, err_msg=f"seed {seed}")
    check_objectives(rng, scores, b, ids, table, losses)
    if loss.semiring == "tropical":
        check_bounds(rng, loss, gold, ids, losses)


def check_objectives(rng, scores, b, ids, table, losses):
    """Softmax margin, hinge, risk, RAML and direct loss: values, and gradients or directions."""
    kept = losses < np.inf
    log_p = np.tensordot(table, scores, axes=scores.ndim)
    log_p -= np.logaddexp.reduce(log_p)
    every = np.tensordot(np.exp(log_p), table, axes=1)  # with the strings of infinite loss
    mode, mode_loss = table[log_p.argmax()], losses[log_p.argmax()]
    table, losses, gold = table[kept], losses[kept], int(rng.integers(kept.sum()))
    ids = ids[kept]
    totals = np.tensordot(table, scores, axes=scores.ndim)
    own = totals - totals[gold]

    def check(found, value, gradient):
        assert found[0] == pytest.approx(value, rel=1e-10, abs=1e-9)
        np.testing.assert_allclose(found[1], gradient, atol=1e-8)

    def mean(log_weights):
        weights = np.exp(log_weights - np.logaddexp.reduce(log_weights))
        return weights, np.tensordot(weights, table, axes=1)

    _, expected = mean(own + losses)
    value = np.logaddexp.reduce(own + losses)
    check(fg.softmax_margin(scores, ids[gold], b), value, expected - table[gold])
    p, expected = mean(own)
    slope = np.tensordot(p * (losses - p @ losses), table, axes=1)
    check(fg.risk(scores, b), p @ losses, slope)
    temperature = float(rng.choice([0.5, 2.0]))
    r, target = mean(-losses / temperature)
    check(fg.raml(scores, b, temperature), -(r @ log_p[kept]), every - target)
    best = table[(own + losses).argmax()]  # the scores are random: a tie is one of the same parts
    check(fg.hinge(scores, ids[gold], b), (own + losses).max(), best - table[gold])
    worse = table[(own + temperature * losses).argmax()]
    check(fg.direct_loss(scores, b, temperature), mode_loss, (worse - mode) / temperature)


def check_bounds(rng, loss, gold, ids, losses):
    """L_k and min(L, cap) of every string."""
    band = int(rng.integers(0, 4))
    try:
        above = loss.compile(gold, ids.shape[1], band=band).losses_of(ids)
    except fg.InfeasibleError:
        above = np.full(len(ids), np.inf)
    assert (above >= losses - 1e-9).all()
    if band == 3:
        np.testing.assert_allclose(above, losses, atol=1e-9)
    finite = losses[losses < np.inf]
    cap = float(finite.min() + rng.random() * (np.ptp(finite) + 0.1))
    capped = loss.compile(gold, ids.shape[1], cap=cap).losses_of(ids)
    np.testing.assert_allclose(capped, np.minimum(losses, cap), atol=1e-8)


def check_lattice(seed):
    """Risk and margin along a random lattice."""
    rng = np.random.default_rng(seed)
    case = RandomLattice(seed, states=5)
    if not case.paths.paths:
        return
    target = tuple(int(i) for i in rng.integers(3, size=int(rng.integers(1, 4))))
    loss, by_hand = random_loss(rng, target)
    losses = np.array([by_hand(y) if y else empty_loss(loss, target) for y in case.paths.strings])
    kept = losses < np.inf
    if not kept.any() or case.paths.log_z() == -np.inf:
        return
    lattice = case.lattice()
    b = lattice.compile(loss, np.array(target))
    totals = case.paths.totals[kept]
    weights = np.exp(totals - np.logaddexp.reduce(totals))
    assert fg.risk(lattice, b)[0] == pytest.approx(weights @ losses[kept], abs=1e-9), seed
    log_z, _ = b.augmented(lattice.graph, lattice.scores)
    assert log_z == pytest.approx(np.logaddexp.reduce(totals + losses[kept]), abs=1e-9), seed


def empty_loss(loss, target):
    """The loss of the empty string, of which some oracles do not know."""
    return loss(np.zeros(0, dtype=np.int64), np.array(target))


def test_a_few_cases_on_strings():
    for seed in range(40):
        check_strings(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 8000, CHUNK))
def test_8000_cases_on_strings(first):
    for seed in range(first, first + CHUNK):
        check_strings(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, CHUNK))
def test_2000_cases_on_lattices(first):
    for seed in range(first, first + CHUNK):
        check_lattice(seed)


def test_a_few_cases_on_lattices():
    for seed in range(20):
        check_lattice(seed)
