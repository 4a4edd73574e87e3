"""Random losses, sums, scales, rates and collapses, on strings and on lattices, by enumeration.

Blanks, and symbols that no target has, are at every place of the alphabet.  10,000 cases in the
slow suite, 80 of them always.
"""

import functools

import numpy as np
import pytest

import fstgrad as fg
from tests.helpers.losses import make_loss
from tests.oracles import losses as alignments
from tests.oracles import strings as oracle
from tests.strings.lattices.random_lattice import RandomLattice

ABC = fg.Alphabet("abc")
TROPICAL = ["edit", "factored", "confusion", "smith-waterman", "osa", "lcs", "affine", "local"]
EXACT = ["hamming", "matrix", "wer", "none", "exact"]
KERNELS = ["ngram", "ngram-smooth", "ngram-linear", "ngram-sum", "gappy", "mismatch"]
USER = ["user-tropical", "user-probability"]
KINDS = [*TROPICAL, *EXACT, *KERNELS, *USER]
CHUNK = 250


def random_part(kind, rng, abc, target):
    """A loss of this kind with random costs, and its oracle."""
    n = len(abc)
    if kind == "osa":
        insert, delete, substitute, transpose = rng.integers(1, 9, size=4) / 4
        return fg.OptimalStringAlignment(
            abc, insert, delete, substitute, transpose
        ), lambda y: alignments.string_alignment(y, target, insert, delete, substitute, transpose)
    if kind == "lcs":
        return fg.LongestCommonSubsequence(
            abc
        ), lambda y: len(target) - alignments.longest_common_subsequence(y, target)
    if kind == "affine":
        matrix = rng.integers(-4, 5, size=(n, n)) / 2
        opening, extending = sorted(rng.integers(0, 9, size=2) / 4, reverse=True)
        loss = fg.GlobalAlignment(abc, matrix, opening, extending)
        return loss, lambda y: alignments.affine_cost(
            y, target, -matrix, gap_open=opening, gap_extend=extending
        )
    if kind == "local":
        matrix = rng.integers(-4, 5, size=(n, n)) / 2
        opening, extending = sorted(rng.integers(1, 9, size=2) / 4, reverse=True)
        loss = fg.SmithWaterman(abc, matrix=matrix, gap_open=opening, gap_extend=extending)
        cost = functools.lru_cache(None)(
            functools.partial(
                alignments.affine_cost, costs=-matrix, gap_open=opening, gap_extend=extending
            )
        )
        return loss, lambda y: min(
            cost(u, v) for u in alignments.factors(y) for v in alignments.factors(target)
        )
    if kind == "none":
        return fg.NoLoss(abc), lambda y: 0.0
    if kind == "exact":
        return fg.ExactMatch(abc), lambda y: 0.0 if tuple(y) == target else np.inf
    if kind == "matrix":
        table = rng.integers(0, 8, size=(n, n)) / 4
        return (
            fg.Hamming(abc, table),
            lambda y: (
                sum(table[pair] for pair in zip(y, target, strict=True))
                if len(y) == len(target)
                else np.inf
            ),
        )
    if kind == "wer":
        insert, delete, substitute = rng.integers(1, 9, size=3) / 4
        return (
            fg.WordErrorRate(abc, insert, delete, substitute),
            lambda y: (
                oracle.edit_distance(y, target, insert=insert, delete=delete, substitute=substitute)
                / len(target)
            ),
        )
    if kind in ("ngram-sum", "gappy", "mismatch"):
        return random_kernel(kind, rng, abc, target)
    return make_loss(kind, rng, abc, target)


def random_kernel(kind, rng, abc, target):
    """A kernel of n-grams up to 2, smoothed, and its oracle."""
    order, smoothing = int(rng.integers(1, 3)), float(rng.choice([0.5, 1.0]))
    if kind == "ngram-sum":
        weights = rng.integers(1, 4, size=order) / 2
        loss = fg.NGramSum(abc, order, weights, smoothing=smoothing)
        return loss, lambda y: -np.log(alignments.ngram_sum(y, target, weights) + smoothing)
    if kind == "gappy":
        loss = fg.GappyNGram(abc, order, 0.5, smoothing=smoothing)
        return loss, lambda y: -np.log(alignments.gappy_kernel(y, target, order, 0.5) + smoothing)
    loss = fg.MismatchNGram(abc, order, order - 1, smoothing=smoothing)
    return (
        loss,
        lambda y: (
            -np.log(alignments.mismatch_kernel(y, target, order, order - 1, len(abc)) + smoothing)
        ),
    )


def random_loss(rng, abc, target, *, is_collapsed):
    """One to three parts, each with a scale of its own or as a rate, and the oracle of the sum."""
    names = rng.choice(KINDS, size=int(rng.choice([1, 1, 2, 3])))
    if is_collapsed and not set(names) <= {*TROPICAL, *EXACT, "user-tropical"}:
        names = names[:1]  # a sum with a rational loss is collapsed part by part
    made = [random_part(str(name), rng, abc, target) for name in names]
    factors, loss = [], None
    for part, _ in made:
        factor = float(rng.choice([1.0, 0.5, 3.0, 0.1, 1 / 3, 1 / len(target)]))
        is_rate = factor == 1 / len(target)
        scaled = fg.Normalized(part) if is_rate else part if factor == 1.0 else factor * part
        loss = scaled if loss is None else loss + scaled
        factors.append(factor)

    def by_hand(y):
        if not y:
            return empty_loss(loss, target)
        return sum(f * oracle_of(y) for f, (_, oracle_of) in zip(factors, made, strict=True))

    return loss, by_hand


def random_case(rng):
    """An alphabet, a loss of its strings, a target of the loss, and the oracle of the loss.

    The alphabet is a permutation of a, b, one or no letter that the target has not, and, in half of
    the cases, a blank.  Then the inner loss may be over another permutation, without the blank.
    """
    letters = list("abc"[: int(rng.integers(2, 4))])
    is_collapsed = rng.random() < 0.5
    symbols = [*letters, "_"] if is_collapsed else letters
    abc = inner = fg.Alphabet(rng.permutation(symbols).tolist())
    if is_collapsed and rng.random() < 0.7:
        inner = fg.Alphabet(rng.permutation(letters).tolist())
    gold = rng.choice(["a", "b"], size=int(rng.integers(1, 4))).tolist()
    target = tuple(inner.encode(gold).tolist())
    loss, by_hand = random_loss(rng, inner, target, is_collapsed=is_collapsed)
    if is_collapsed:
        how = str(rng.choice(["blank", "ctc", "end"]))
        loss, by_hand = collapsed_by(how, abc, inner, loss, by_hand)
    return abc, gold, loss, by_hand


def collapsed_by(how, abc, inner, loss, by_hand):
    """The loss of latent strings over `abc` with the blank "_", and its oracle."""

    def of_latent(z):
        y = alignments.collapse(z, how, abc.symbols.index("_"))
        return np.inf if y is None else by_hand(tuple(inner.encode(abc.decode(y)).tolist()))

    return fg.CollapsedLoss(loss, abc, collapse=how, blank="_"), of_latent


def check_strings(seed):
    """Losses, log Z, marginals, all objectives, bands and caps of one case."""
    print("seed", seed)
    rng = np.random.default_rng(seed)
    abc, gold, loss, by_hand = random_case(rng)
    length, n = int(rng.integers(1, 4)), len(abc)
    strings = oracle.all_strings(n, length)
    losses, ids = np.array([by_hand(y) for y in strings]), np.array(strings)
    np.testing.assert_allclose(loss.matrix(list(ids), [gold])[:, 0], losses, atol=1e-9)
    if not (losses < np.inf).any():
        return
    order = int(rng.integers(1, 4))
    scale = float(rng.choice([0.0, 0.1, 1.0, 30.0]))
    scores = scale * rng.normal(size=(length, *(n + 1,) * (order - 1), n))
    check_automaton(rng, scores, loss.compile(gold, length), ids, losses)
    if loss.semiring == "tropical":
        check_bounds(rng, scores, loss, gold, ids, losses)


def check_automaton(rng, scores, b, ids, losses):
    """Losses, log Z, marginals and all objectives of an automaton."""
    np.testing.assert_allclose(b.losses_of(ids), losses, atol=1e-8)
    d = fg.StringDistribution(scores, b)
    table = np.array([oracle.parts(y, scores) for y in ids.tolist()])
    weights = np.tensordot(table, scores, axes=scores.ndim)
    weights += np.where(losses < np.inf, losses, -np.inf)
    log_z = np.logaddexp.reduce(weights)
    assert d.log_partition() == pytest.approx(log_z, rel=1e-10, abs=1e-9)
    expected = np.tensordot(np.exp(weights - log_z), table, axes=1)
    np.testing.assert_allclose(d.marginals(), expected, atol=1e-8)
    check_objectives(rng, scores, b, ids, table, losses)


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
    if not scores.any():
        return  # ties, of which any string is the best
    best = table[(own + losses).argmax()]  # the scores are random: a tie is one of the same parts
    check(fg.hinge(scores, ids[gold], b), (own + losses).max(), best - table[gold])
    worse = table[(own + temperature * losses).argmax()]
    check(fg.direct_loss(scores, b, temperature), mode_loss, (worse - mode) / temperature)


def check_bounds(rng, scores, loss, gold, ids, losses):
    """L_k and min(L, cap)."""
    band = int(rng.integers(0, 4))
    try:
        b = loss.compile(gold, ids.shape[1], band=band)
    except fg.InfeasibleError:
        assert band < 3
    else:
        above = b.losses_of(ids)  # `test_proposals` compares them with a banded recursion
        assert (above >= losses - 1e-9).all()
        if band == 3:
            np.testing.assert_allclose(above, losses, atol=1e-9)
        check_automaton(rng, scores, b, ids, above)
    finite = losses[losses < np.inf]
    cap = float(finite.min() + rng.random() * (np.ptp(finite) + 0.1))
    capped = loss.compile(gold, ids.shape[1], cap=cap)
    check_automaton(rng, scores, capped, ids, np.minimum(losses, cap))


def check_lattice(seed):
    """Risk and margin along a random lattice."""
    rng = np.random.default_rng(seed)
    case = RandomLattice(seed, states=5)
    if not case.paths.paths:
        return
    is_collapsed = rng.random() < 0.3
    abc = fg.Alphabet(rng.permutation(list("ab_")).tolist()) if is_collapsed else ABC
    gold = rng.choice([a for a in abc if a != "_"], size=int(rng.integers(1, 4))).tolist()
    loss, by_hand = random_loss(
        rng, abc, tuple(abc.encode(gold).tolist()), is_collapsed=is_collapsed
    )
    if is_collapsed:
        how = str(rng.choice(["blank", "ctc", "end"]))
        loss, by_hand = collapsed_by(how, abc, abc, loss, by_hand)
    losses = np.array([by_hand(y) for y in case.paths.strings])
    kept = losses < np.inf
    if not kept.any() or case.paths.log_z() == -np.inf:
        return
    lattice = case.lattice(abc)
    b = lattice.compile(loss, gold)
    totals = case.paths.totals[kept]
    weights = np.exp(totals - np.logaddexp.reduce(totals))
    assert fg.risk(lattice, b)[0] == pytest.approx(weights @ losses[kept], abs=1e-9), seed
    log_z, _ = b.augmented(lattice.graph, lattice.scores)
    assert log_z == pytest.approx(np.logaddexp.reduce(totals + losses[kept]), abs=1e-9), seed


def empty_loss(loss, target):
    """The loss of the empty string, of which some oracles do not know."""
    return loss(np.zeros(0, dtype=np.int64), np.array(target))


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_a_few_cases_on_strings(first):
    for seed in range(first, first + 20):
        check_strings(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, 8000, CHUNK))
def test_8000_cases_on_strings(first):
    for seed in range(first, first + CHUNK):
        check_strings(seed)


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(0, 2000, CHUNK))
def test_2000_cases_on_lattices(first):
    for seed in range(first, first + CHUNK):
        check_lattice(seed)


def test_a_few_cases_on_lattices():
    for seed in range(20):
        check_lattice(seed)
