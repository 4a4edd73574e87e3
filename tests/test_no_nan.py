"""No result holds NaN: weights of 0, weights that underflow, and infinite losses.

Each public name has a call with such an input, whose result is searched.  Warnings are errors, so
that no warning of NumPy comes out either.  An error of fstgrad is a valid answer.
"""

# ruff: noqa: B023
# (the functions run before their loops go on)

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

import fstgrad as fg

ABC = fg.Alphabet("ab")
EDIT, HAMMING = fg.EditDistance(ABC), fg.Hamming(ABC)
LOSSES = {
    "EditDistance": fg.EditDistance(ABC, np.inf, 1.0, 0.0),
    "CharacterErrorRate": fg.CharacterErrorRate(ABC, np.inf),
    "CollapsedLoss": fg.CollapsedLoss(HAMMING, fg.Alphabet("ab_"), blank="_"),
    "ExactMatch": fg.ExactMatch(ABC),
    "FunctionLoss": fg.FunctionLoss(ABC, lambda y, target: np.inf if y == target else 1e-300),
    "GappyNGram": fg.GappyNGram(ABC, 2),
    "GlobalAlignment": fg.GlobalAlignment(ABC, np.eye(2), 1e30, 0.0),
    "Hamming": HAMMING,
    "LongestCommonSubsequence": fg.LongestCommonSubsequence(ABC),
    "MismatchNGram": fg.MismatchNGram(ABC, 2, 1),
    "NGram": fg.NGram(ABC, 2),
    "NGramSum": fg.NGramSum(ABC, 2),
    "NoLoss": fg.NoLoss(ABC),
    "Normalized": fg.Normalized(HAMMING),
    "OptimalStringAlignment": fg.OptimalStringAlignment(ABC, np.inf, np.inf, 1.0, 0.0),
    "RuleLoss": fg.RuleLoss("alphabet = ab\na -> b 0.5"),
    "SmithWaterman": fg.SmithWaterman(ABC, gap_open=1e30),
    "SubstitutionMatrix": fg.SmithWaterman(
        ABC, matrix=fg.SubstitutionMatrix("ab", "ab", -1e30 * np.eye(2)), gap_open=0.0
    ),
    "TransducerLoss": fg.TransducerLoss(EDIT.transducer, ABC, semiring="probability"),
    "WordErrorRate": fg.WordErrorRate(ABC, np.inf, np.inf),
}
SCORES = {
    "underflows": np.array([[0.0, -800.0], [-1e5, 0.0]]),
    "all underflow": np.full((2, 2), -1e5),
    "forbidden": np.array([[0.0, -np.inf], [-800.0, 0.0]]),
    "bigrams": np.array([[[0.0, -800.0]] * 3, [[-1e5, 0.0], [-np.inf, 0.0], [0.0, 0.0]]]),
}
TREES = np.array([[0, 0, -800.0, -1e5], [0, 0, 0, -np.inf], [0, 700, 0, 0], [0, 0, -800, 0]])
# features, results of the calls below, bases, and objects that compute as the functions here do
WITHOUT = {
    "ArrayDistribution", "AutomatonCache", "Batch", "Budget", "CapChoice", "Consensus", "CostFit",
    "Distribution", "Features", "InputFeatures", "LatticeLoss", "Loss", "LossAutomaton",
    "PairObjective", "PairwiseMRFBatch", "PositionalQGrams", "QGramCounts", "SampledObjective",
    "Score", "TargetLoss", "TemplateFeatures", "Window", "__version__",
}  # fmt: skip
UNKNOWN = ("r_hat", "effective_samples", "log_partition_error", "log_partition")  # of some methods
COUNTS = np.array([[0, 1, 0], [0, 0, 2], [0, 3, 1], [0, 1, 40], [0, 0, 0]])


def nans(value, place="result"):
    """Yield where a result holds NaN."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    elif hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from nans(part, f"{place}.{name}")
    elif isinstance(value, np.ndarray):
        if value.dtype.kind == "f" and np.isnan(value).any():
            yield place
    elif isinstance(value, float | np.floating):
        if np.isnan(value):
            yield place
    elif isinstance(value, Sequence) and not isinstance(value, str):
        for i, part in enumerate(value):
            yield from nans(part, f"{place}[{i}]")


def check(*calls, documented=()):
    """Run calls; fail if a result holds NaN at an undocumented place."""
    for i, call in enumerate(calls):
        try:
            result = call()
        except fg.FstgradError as error:
            result = [np.nan] * (" nan" in str(error))
        found = [place for place in nans(result) if not place.endswith(tuple(documented))]
        assert not found, (i, found)


def of_distribution(p, other, structure, table):
    """The calls of the contract."""
    return (
        p.log_partition, p.marginals, p.entropy, p.mode, lambda: p.sample(5, 0),
        lambda: p.kl(other), lambda: other.kl(p), lambda: p.cross_entropy(other),
        lambda: p.log_prob(structure), lambda: p.nll(structure), lambda: p.kbest(9),
        lambda: p.expectation(table), lambda: p.covariance(table, table),
        lambda: p.covariance_product(table),
    )  # fmt: skip


@pytest.mark.filterwarnings("ignore:all candidates have an infinite:UserWarning")
@pytest.mark.parametrize("kind", LOSSES)
def test_losses_of_strings(kind):
    loss = LOSSES[kind]
    ys = ["", "a", "ab", "bb", "aba"]
    for y in ys:
        check(*(lambda z=z, y=y: loss(y, z) for z in ys))
        check(lambda y=y: loss.align(y, "ab"))
    check(lambda: loss.matrix(ys[1:], ys[1:]), lambda: loss.pairwise(ys[1:], ys[1:]))
    size = len(loss.alphabet)
    for given in SCORES.values():
        scores = np.full((*given.shape[:1], *(size + 1,) * (given.ndim - 2), size), -800.0)
        scores[tuple(slice(0, n) for n in given.shape)] = given
        for target in ("ab",):
            try:
                b = loss.compile(target, 2)
            except fg.FstgradError:
                continue
            p, plain = fg.StringDistribution(scores, b), fg.StringDistribution(scores)
            check(*of_distribution(p, plain, "ab", np.ones(scores.shape)))
            check(
                p.log_partition_bounds, lambda: plain.expected_loss(b), lambda: fg.risk(scores, b),
                lambda: fg.softmax_margin(scores, "ab", b), lambda: fg.hinge(scores, "ab", b),
                lambda: fg.raml(scores, b), lambda: fg.raml(scores, b, 1e-320),
                lambda: fg.direct_loss(scores, b), lambda: fg.direct_loss(scores, b, 1e-320),
                lambda: fg.latent_softmax_margin(scores, b, b), lambda: b.loss("ab"),
                lambda: fg.choose_cap(scores, loss, target, tolerance=0.1),
            )  # fmt: skip
            for call in (fg.sampled_risk, fg.sampled_softmax_margin):
                check(lambda call=call: call(scores, target, loss, samples=20))
            check(
                lambda: fg.mbr(plain, loss, ["a", "ab", "bb"][1:]),
                lambda: fg.mbr(plain, loss, ["ab", "bb"], samples=3),
                documented=("standard_errors", "confidence"),
            )


def test_spans():
    tags = fg.Alphabet(["O", "B", "I"])
    check(lambda: fg.TagScheme(tags).allowed, lambda: fg.TagScheme(tags).spans("OBI"))
    for costs in ((0.0, 1.0), (1e30, 1e30)):
        loss = fg.SpanHamming(tags, "BIO", *costs)
        check(lambda: loss("OBI", "BIB"), lambda: loss("OB", "BIB"))
        for scores in (np.full((3, 3), -1e5), np.array([[0.0, -np.inf, -800.0]] * 3)):
            b = loss.compile("BIB")
            check(lambda: fg.risk(scores, b), lambda: fg.softmax_margin(scores, "OOO", b))


@pytest.mark.filterwarnings("ignore:all candidates have an infinite:UserWarning")
@pytest.mark.parametrize("kind", LOSSES)
def test_lattices(kind):
    loss = LOSSES[kind]
    strings = [list(string) for string in ("a", "ab", "ba", "bbb")]
    for target, scores in (
        ("ab", [0.0, -800.0, -1e5, 0.0]),
        ("a", [-1e5] * 4),
        ("ab", [-np.inf, 0.0, -800.0, -np.inf]),
    ):
        lattice = fg.Lattice.from_nbest(strings, scores, loss.alphabet)
        check(*of_distribution(lattice, lattice, "ab", np.ones(lattice.num_arcs)))
        check(lattice.recentered.marginals, lattice.best_path, lattice.to_confusion_network)
        ones = np.ones(lattice.num_arcs)
        check(lattice.entropy_and_gradient, lambda: lattice.third_order(ones, ones))
        check(lambda: lattice.entropy_hessian_product(ones))
        empty = lattice.with_scores(np.full(lattice.num_arcs, -np.inf))
        check(empty.mode, lambda: empty.kbest(2), lambda: fg.mbr(empty, loss))
        check(
            lambda: lattice.expected_loss(lattice.compile(loss, target)),
            lambda: fg.risk(lattice, target, loss),
            lambda: fg.softmax_margin(lattice, target, loss),
            lambda: fg.hinge(lattice, target, loss),
            lambda: fg.raml(lattice, lattice.compile(loss, target)),
            lambda: fg.raml(lattice, lattice.compile(loss, target), 1e-320),
            lambda: fg.direct_loss(lattice, lattice.compile(loss, target)),
            lambda: fg.sampled_risk(lattice, target, loss, samples=20),
            lambda: fg.sampled_softmax_margin(lattice, target, loss, samples=20),
        )
        check(
            lambda: fg.mbr(lattice, loss), lambda: fg.mbr(lattice, loss, samples=2),
            lambda: fg.mbr(lattice, loss, ["bbb", "a"]),
            documented=("standard_errors",),
        )  # fmt: skip


@pytest.mark.parametrize("strings", [[""], ["", "a b"], ["a", "a"]])
def test_scores(strings):
    for loss in ("wer", "cer", LOSSES["WordErrorRate"]):
        for references in (strings, [""] * len(strings)):
            result = fg.score(strings, references, loss, by=["x"] * len(strings), resamples=3)
            rows = result.rows if loss != LOSSES["WordErrorRate"] else ()
            check(lambda rows=rows: rows, lambda result=result: result.compare(result))
    words = {*" ".join(strings).split()}
    dropped = fg.score(strings, strings, drop=words, resamples=3)  # nothing is left
    check(lambda: dropped.rows)


@pytest.mark.parametrize("single_root", [False, True])
def test_trees(single_root):
    for kind in (fg.SpanningTrees, fg.ProjectiveTrees):
        for scores in (TREES, TREES - 1e5, np.where(TREES < 0, -1e38, TREES)):
            p = kind(scores, single_root=single_root)
            other = kind(np.zeros((4, 4)), single_root=single_root)
            check(*of_distribution(p, other, [0, 1, 2], np.ones((4, 4))))
            check(
                p.covariance_matrix, lambda: p.renyi(2.0), lambda: p.renyi(1e-3),
                lambda: p.renyi(0), lambda: p.norm(0.5), lambda: p.norm(np.inf),
                lambda: p.second_moments(np.ones((4, 4, 2)), np.zeros((4, 4, 2))),
                lambda: p.totals(np.ones((4, 4, 1)), -np.ones((4, 4, 1))),
                p.entropy_and_gradient, lambda: p.risk(np.ones((4, 4))),
                lambda: p.expected_product(np.zeros((4, 4))),
                lambda: p.expected_product(np.full((4, 4), 1e120)),
                lambda: p.expected_product(-np.full((4, 4), 1e120)), p.minimum_risk_tree,
                lambda: fg.best_tree(scores, single_root=single_root),
            )  # fmt: skip


@pytest.mark.parametrize("scores", [[0.0, -800.0, -1e5, 0.0], [-1e5] * 4, [0, -np.inf, 0, -800.0]])
def test_sparse_and_undirected_trees(scores):
    edges = np.array([[0, 1], [1, 2], [0, 2], [2, 3]])
    table = np.full((4, 4), -np.inf)
    table[tuple(edges.T)] = table[tuple(edges.T[::-1])] = scores
    for p in (
        fg.SparseSpanningTrees(edges, scores, n=3),
        fg.SparseUndirectedTrees(edges, scores, n=4),
        fg.UndirectedTrees(table),
    ):
        names = ("log_partition", "marginals", "entropy", "mode")
        check(*(getattr(p, name) for name in names if hasattr(p, name)))


@pytest.mark.parametrize("scale", [1.0, 800.0, 1e5])
def test_fields(scale):
    node, edge = np.zeros((4, 2)), scale * np.array([[0.0, -1.0], [-np.inf, 0.0]])
    node[0] = 0.0, -np.inf
    p = fg.PairwiseMRF.grid(
        2, 2, node_scores=scale * np.where(node < 0, -1.0, 0.0), edge_scores=edge
    )
    q = fg.PairwiseMRF.grid(2, 2, node_scores=node, edge_scores=edge)
    gold = [0, 0, 0, 0]
    for one in (p, q):
        check(
            one.log_partition, one.marginals, one.entropy, one.mode, lambda: one.nll(gold),
            lambda: one.kl(q), lambda: one.cross_entropy(p), lambda: one.sample(3, 0),
            lambda: one.kbest(3), lambda: one.log_prob(gold), lambda: one.log_prob([1, 0, 1, 0]),
            lambda: one.nll(gold, method="pseudolikelihood"), lambda: one.nll(gold, method="bp"),
        )  # fmt: skip
        for method in ("bp", "trw", "mean-field", "bounds", "gibbs"):
            check(lambda m=method: one.infer(m), documented=UNKNOWN[: 3 + (method == "gibbs")])
        for method in ("icm", "trw", "expansion", "max-product"):
            check(lambda method=method: one.decode(method))


@pytest.mark.filterwarnings("ignore:.*constant|.*converge|.*normaliz:UserWarning")
@pytest.mark.parametrize("base", ["poisson", "negative-binomial", "hurdle-poisson", "bernoulli"])
def test_root_models(base):
    """A column of zeros, a row of weight 0."""
    counts = np.minimum(COUNTS, 1) if base == "bernoulli" else COUNTS
    model = fg.GeneralizedRootModel(k=2, base=base, alpha=0.1, max_iter=50)
    fitted = model.fit(counts, sample_weight=[1.0, 1.0, 1.0, 1.0, 0.0])
    check(
        lambda: fitted.score(counts), lambda: fitted.score_samples(counts), lambda: fitted.kkt_,
        lambda: fitted.sample(5, rng=0), lambda: fitted.log_partition(),
    )  # fmt: skip


def test_costs_and_models():
    pairs = [("ab", "a"), ("b", "bb"), ("a", "a")]
    check(lambda: fg.fit_costs(EDIT, pairs), lambda: fg.fit_costs(HAMMING, [("a", "b")]))
    check(lambda: fg.fit_ranking(EDIT, [("ab", "a", "b")], ["a", "b", "bb"]))
    for objective in ("crf", "risk", "softmax-margin", "hinge", "raml"):
        model = fg.SequenceModel("edit", objective=objective, epochs=1, learning_rate=1e6)
        model.fit(["ab", "b"], ["ba", "a"])
        check(lambda m=model: m.evaluate(["ab"], ["ba"]), lambda m=model: m.coef_)
        check(lambda m=model: m.predict_nbest(["ab"], k=3))


def test_every_public_name_has_a_call():
    text = pathlib.Path(__file__).read_text()
    names = [name for name in fg.__all__ if not name.endswith(("Error", "Warning"))]
    assert [name for name in names if f"fg.{name}" not in text and name not in WITHOUT] == []
