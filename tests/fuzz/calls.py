"""Calls of the API that work, with arguments small enough to repeat them by the thousand."""

import contextlib
import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import fstgrad as fg
from fstgrad import costs
from fstgrad.learning.align import Aligner
from fstgrad.mrf.estimator import MRFClassifier
from tests.fuzz.wrong import Call, bound


@cache
def calls() -> tuple[Call, ...]:
    """Return calls that work, one for every public function and method with arguments."""
    found: list[Call] = []

    def add(name: str, function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:
        found.append(Call(name, function, bound(function, given, named)))
        return function(*given, **named)

    make(add)
    _estimators(add)
    return tuple(found)


def make(add: Callable[..., Any]) -> None:
    """Call add(name, function, *arguments, **named) for all functions; it returns their results."""
    abc = add("Alphabet", fg.Alphabet, "ab")
    add("encode", abc.encode, "ab")
    _losses(add, abc)
    _strings(add, abc)
    _lattices(add, abc)
    _trees(add)
    _fields(add)
    _roots(add)
    _training(add, abc)
    _costs(add, abc)


def _losses(add: Callable[..., Any], abc: fg.Alphabet) -> None:
    edit = add("EditDistance", fg.EditDistance, abc, 1.0, 1.0, 0.5)
    add("EditDistance confusion", fg.EditDistance, abc, confusion=np.eye(2))
    add("Hamming", fg.Hamming, abc, 1.0)
    add("NGram", fg.NGram, abc, 2, smoothing=0.5, log=True)
    add("NGramSum", fg.NGramSum, abc, 2, [1.0, 2.0])
    add("GappyNGram", fg.GappyNGram, abc, 2, 0.5)
    add("MismatchNGram", fg.MismatchNGram, abc, 2, 1)
    add("SmithWaterman", fg.SmithWaterman, abc, matrix=np.eye(2), gap_open=1.0, gap_extend=0.5)
    add("GlobalAlignment", fg.GlobalAlignment, abc, np.eye(2), 1.0, 0.5, free_ends="none")
    add("OptimalStringAlignment", fg.OptimalStringAlignment, abc, 1.0, 1.0, 1.0, 1.0)
    add("TransducerLoss", fg.TransducerLoss, edit.transducer, abc, semiring="tropical")
    add("loss", edit.__call__, "ab", "ba")
    add("compile", edit.compile, "ab", 3, cap=2.0, engine="layered", max_states=1000)
    add("check", edit.check, ["ab"])
    add("against", edit.against, "ab")
    add("losses_of", edit.against("ab").losses_of, np.array([[0, 1], [1, 1]]))
    b = edit.compile("aba")
    add("automaton loss", b.loss, "aba")
    add("compile band", edit.compile, "aba", 3, band=1)
    add("pairwise", edit.pairwise, ["ab", "b"], ["ba", "a"], threads=1)
    add("matrix", edit.matrix, ["ab", "b"], ["ba"], threads=1)
    add("align", edit.align, "ab", "ba")
    add("osa align", fg.OptimalStringAlignment(abc).align, "ab", "ba")
    blanks = fg.Alphabet(["a", "b", "_"])
    ctc = add("CollapsedLoss", fg.CollapsedLoss, edit, blanks, None, collapse="ctc", blank=["_"])
    add("ctc", ctc.__call__, ["a", "_", "b"], "ab")
    add("ctc compile", ctc.compile, "ab", 3, max_states=1000)
    add("ctc read", ctc.read, ["a", "_", "b"])
    add("collapsed", fg.losses.collapsed, fg.EditDistance(blanks), "_", "blank")
    add("RuleLoss", fg.RuleLoss, "alphabet = ab\na -> b 0.5 / # _ b", abc)
    add("ExactMatch", fg.ExactMatch, abc)
    add("Normalized", fg.Normalized, edit)
    tags = fg.Alphabet(["O", "B", "I"])
    add("TagScheme", fg.TagScheme, ["O", "B", "I"], "BIO")
    add("spans", fg.TagScheme(tags).spans, ["B", "I"])
    add("SpanHamming", fg.SpanHamming, tags, "BIO", 1.0, 1.0)
    add("WordErrorRate", fg.WordErrorRate, abc, 1.0, 1.0, 1.0)
    add("LongestCommonSubsequence", fg.LongestCommonSubsequence, abc)
    add("SubstitutionMatrix", fg.SubstitutionMatrix, ("a", "b"), ("a", "b"), np.eye(2))
    add("AutomatonCache", fg.AutomatonCache, 10_000)
    add("times", edit.__rmul__, 2.0)
    add("NGramSum weights", fg.NGramSum, abc, 2, weights=[1.0, 2.0])
    add("SmithWaterman matrix", fg.SmithWaterman, abc, matrix=np.eye(2), gap_open=1.0)
    for loss in (
        ctc, edit, fg.CharacterErrorRate(abc), fg.ExactMatch(abc), fg.GappyNGram(abc, 2),
        fg.GlobalAlignment(abc, np.eye(2), 1.0, 0.5), fg.Hamming(abc), fg.MismatchNGram(abc, 2, 1),
        fg.LongestCommonSubsequence(abc), fg.NGram(abc, 2), fg.NGramSum(abc, 2), fg.NoLoss(abc),
        fg.Normalized(edit), fg.OptimalStringAlignment(abc), fg.SmithWaterman(abc),
        fg.RuleLoss("alphabet = ab\na -> b 0.5"), fg.WordErrorRate(abc),
        fg.TransducerLoss(edit.transducer, abc),
    ):  # fmt: skip
        for method, given in (("align", (["a", "b"], ["b"])), ("compile", (["a", "b"], 2))):
            with contextlib.suppress(fg.NotSupportedError, fg.InfeasibleError):
                add(f"{type(loss).__name__}.{method}", getattr(loss, method), *given)
    add("plus", edit.__add__, fg.Hamming(abc))


def _strings(add: Callable[..., Any], abc: fg.Alphabet) -> None:
    rng = np.random.default_rng(0)
    scores, b = rng.normal(size=(3, 2)), fg.EditDistance(abc).compile("aba")
    bigrams = rng.normal(size=(3, 3, 2))
    loss = fg.EditDistance(abc)
    p = add("StringDistribution", fg.StringDistribution, scores, b)
    add("StringDistribution bigrams", fg.StringDistribution, bigrams, b)
    _contract(add, p, "strings", "aba", scores, fg.StringDistribution(scores + 1))
    add("softmax_margin", fg.softmax_margin, scores, "aba", b)
    add("risk", fg.risk, scores, b)
    lattice = fg.Lattice.from_text("0 1 a 0.5\n1 2 b\n0 2 b 1\n2", abc)
    add("softmax_margin lattice", fg.softmax_margin, lattice, "ab", loss)
    add("risk lattice", fg.risk, lattice, "ab", loss)
    add("hinge", fg.hinge, scores, "aba", b)
    add("raml", fg.raml, scores, b, 0.5)
    add("direct_loss", fg.direct_loss, scores, b, 0.5)
    add("mbr", fg.mbr, p, loss, ["aba", "bb"], samples=5, rng=0)
    gold = fg.CollapsedLoss(fg.ExactMatch(abc), abc, collapse="blank").compile("aba", 3)
    add("latent_softmax_margin", fg.latent_softmax_margin, scores, gold, b)

    def budgeted(seconds: Any, memory: Any, width: Any) -> Any:
        budget = fg.Budget(seconds, memory, width)
        return fg.sampled_softmax_margin(scores, "aba", loss.against("aba"), samples=budget, rng=0)

    add("Budget", budgeted, 0.01, 1e6, 0.5)
    add("choose_cap", fg.choose_cap, scores, loss, "aba", tolerance=0.1, max_states=1000)
    add("sampled_softmax_margin", fg.sampled_softmax_margin, scores, "aba", loss.against("aba"),
        samples=5, rng=0)  # fmt: skip
    add("sampled_risk", fg.sampled_risk, scores, None, loss.against("aba"), samples=5, rng=0)


def _contract(
    add: Callable[..., Any], p: Any, name: str, event: Any, table: Any, other: Any
) -> None:
    """Add the methods that every distribution has."""
    for method, arguments in (
        ("log_prob", (event,)), ("parts", (event,)), ("nll", (event,)), ("kl", (other,)),
        ("cross_entropy", (other,)), ("covariance_product", (table,)), ("expectation", (table,)),
        ("covariance", (table, table)), ("kbest", (2,)), ("sample", (2, 0)), ("string", (0,)),
        ("condition", ({0: 1},)),
    ):  # fmt: skip
        function = getattr(p, method, None)
        if function is None:
            continue
        try:
            add(f"{name}.{method}", function, *arguments)
        except (TypeError, fg.FstgradError):
            continue


def _lattices(add: Callable[..., Any], abc: fg.Alphabet) -> None:
    text = "0 1 a 0.5\n1 2 b\n0 2 b 1\n2"
    p = add("Lattice.from_text", fg.Lattice.from_text, text, abc)
    add("Lattice.from_fst", fg.Lattice.from_fst, p.to_fst(), abc)
    add("Lattice.from_nbest", fg.Lattice.from_nbest, ["ab", "b"], [0.0, 0.5], abc)
    add("Lattice.from_confusion_network", fg.Lattice.from_confusion_network,
        [[("a", 0.0), ("b", -1.0)], [("b", 0.0), (None, 0.0)]], abc)  # fmt: skip
    add("Lattice.from_arcs", fg.Lattice.from_arcs, [0, 1], [1, 2], [0, 1], [0.0, 0.5], abc,
        final=[2], start=0)  # fmt: skip
    _contract(add, p, "lattice", "ab", p.scores, p.with_scores(p.scores + 1))
    add("lattice.to_fst", p.to_fst, p.scores)
    add("lattice.compile", p.compile, fg.EditDistance(abc), "ab", cap=None, max_states=1000)
    add("lattice.string", p.string, p.best_path()[0])
    add("lattice.sample_paths", p.sample_paths, 2, 0)


def _trees(add: Callable[..., Any]) -> None:
    scores = np.random.default_rng(0).normal(size=(4, 4))
    for kind in (fg.SpanningTrees, fg.ProjectiveTrees):
        p = add(kind.__name__, kind, scores, single_root=True)
        heads = p.mode()
        _contract(add, p, kind.__name__, heads, scores, kind(scores + np.eye(4), single_root=True))
        for method, arguments in (("renyi_and_gradient", (2.0,)),):
            if hasattr(p, method):
                add(f"{kind.__name__}.{method}", getattr(p, method), *arguments)
    arcs, weights = np.array([[0, 1], [1, 2], [0, 2]]), np.zeros(3)
    sparser = add("SparseSpanningTrees", fg.SparseSpanningTrees, arcs, weights, n=2)
    add("sparse sample", sparser.sample, 2, 0)
    add("SparseUndirectedTrees", fg.SparseUndirectedTrees, arcs, weights, n=3,
        root_scores=np.zeros(3))  # fmt: skip
    add("UndirectedTrees", fg.UndirectedTrees, np.zeros((3, 3)), root_scores=np.zeros(3))
    add("undirected sample", fg.UndirectedTrees(np.zeros((3, 3))).sample, 2, 0)


def _fields(add: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    node, edge = rng.normal(size=(4, 2)), rng.normal(size=(4, 2, 2))
    edges = np.array([[0, 1], [1, 2], [2, 3], [0, 3]])
    p = add("PairwiseMRF", fg.PairwiseMRF, node, edge, edges)
    add("PairwiseMRF labels_per_node", fg.PairwiseMRF, node, edge, edges,
        labels_per_node=[2, 2, 2, 2])  # fmt: skip
    add("PairwiseMRF.grid", fg.PairwiseMRF.grid, 2, 2, rng.normal(size=(2, 2, 2)), np.eye(2),
        connectivity=4)  # fmt: skip
    _contract(add, p, "mrf", np.zeros(4, int), p.scores, fg.PairwiseMRF(node + 1, edge, edges))
    for method in ("exact", "bp", "mean-field", "gibbs"):
        more = {"samples": 40, "burn_in": 1, "rng": 0} if method == "gibbs" else {}
        add(f"mrf.infer {method}", p.infer, method, **more)
    add("mrf.decode", p.decode, "icm")
    add("mrf.score", p.score, np.zeros(4, int))


def _roots(add: Callable[..., Any]) -> None:
    counts = np.random.default_rng(0).poisson(1.0, size=(8, 2))

    def fitted(k: Any, base: Any, alpha: Any, tol: Any, X: Any, names: Any) -> Any:
        model = fg.GeneralizedRootModel(k, base, alpha, tol=tol, max_iter=5)
        return model.fit(X, feature_names=names)

    model = add("grm.fit", fitted, 2, "poisson", 0.1, 1e-3, counts, ["a", "b"])
    add("grm.score", model.score, counts)
    add("grm.gibbs", model.gibbs, 2, 0, burn_in=1)
    add("grm.top", model.top_interactions, 2, 3)
    add("grm.log_partition", model.log_partition)
    rows = {
        "sample_weight": np.linspace(0.5, 1.5, 8), "offset": np.linspace(0.0, 0.2, 8),
        "covariates": np.linspace(-1.0, 1.0, 8)[:, None], "feature_names": ["a", "b"],
        "alphas": [1.0, 0.5], "samples": 2, "sweeps": 2, "chains": 4,
    }  # fmt: skip
    model = fg.GeneralizedRootModel(2, alpha=1.0, tol=1e-1, max_iter=2)
    for method in ("fit", "score", "score_samples", "pseudo_log_likelihood", "report", "alpha_max",
                   "path", "select", "stability"):  # fmt: skip
        function = getattr(model, method)
        taken = inspect.signature(function).parameters
        given = {name: value for name, value in rows.items() if name in taken}
        add(f"grm.{method} all", function, counts, **given)


def _training(add: Callable[..., Any], abc: fg.Alphabet) -> None:
    features = add("QGramCounts", fg.QGramCounts, abc, 2, boundary=False)
    add("features.scores", features.scores, np.zeros((2, 2)), "x", 3)
    add("features.gradient", features.gradient, np.zeros((3, 3, 2)), "x")
    objective = add("PairObjective", fg.PairObjective, features, fg.EditDistance(abc), "risk",
                    cap=2.0, max_states=1000, method=None, samples=5, seed=0)  # fmt: skip
    add("objective", objective.__call__, np.zeros((2, 2)), "x", "ab")
    add("objective.mean", objective.mean, np.zeros((2, 2)), [("x", "ab")])

    def trained(X: Any, Y: Any, order: Any, l2: Any, epochs: Any) -> Any:
        return fg.SequenceModel(order=order, l2=l2, epochs=epochs, window=1).fit(X, Y)

    model = add("SequenceModel", trained, ["ab", "b"], ["ba", "a"], 1, 1e-3, 1)
    add("predict", model.predict, ["ab"])
    add("predict_nbest", model.predict_nbest, ["ab"], 2)
    add("evaluate", model.evaluate, ["ab"], ["ba"])


def _costs(add: Callable[..., Any], abc: fg.Alphabet) -> None:
    edit, pairs = fg.EditDistance(abc), [("ab", "ba"), ("b", "ab", 2.0)]

    def fitted(source: Any, pairs: Any, given: Any, tie: Any, smoothing: Any, held_out: Any,
               prior: Any, restarts: Any, rng: Any) -> Any:  # fmt: skip
        schedule = costs.Schedule(max_iter=2, restarts=restarts)
        return fg.fit_costs(source, pairs, given=given, tie=tie, smoothing=smoothing, prior=prior,
                            held_out=held_out, schedule=schedule, rng=rng)  # fmt: skip

    add("fit_costs", fitted, edit, pairs, "nothing", "pair", 0.1, 0.0, "uniform", 1, 0)
    add("Schedule", lambda schedule: fg.fit_costs(edit, pairs, schedule=schedule),
        costs.Schedule(1))  # fmt: skip
    questions = [("ab", 0, ["ba", "b"]), ("b", 1, ["a", "ab"])]
    add("fit_ranking", fg.fit_ranking, edit, questions, abc, tie="pair", objective="softmax",
        margin=0.5, semiring="probability", penalty=0.1, max_iter=2)  # fmt: skip
    add("explain", costs.explain, edit, "ab", "ba", 2)
    add("loss_gradient", costs.loss_gradient, edit, "ab", "ba", tie="pair")
    add("cost gradient", costs.softmax_margin_gradient, np.zeros((2, 2)), "ab", edit, tie="pair",
        samples=5, rng=0)  # fmt: skip
    add("pair_transducer", costs.pair_transducer, edit, abc)


def _estimators(add: Callable[..., Any]) -> None:
    """Add fits with every setting; a constructor keeps what `fit` looks at."""
    graph = fg.PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), [(0, 1)])
    nodes = np.array([[[1.0], [1.0]], [[-1.0], [-1.0]], [[1.0], [-0.1]]])
    counts = np.random.default_rng(0).poisson(1.0, size=(12, 3))
    pairs = [("ax", "aks"), ("xa", "ksa"), ("a", "a")]
    for kind, data, settings in (
        (fg.SequenceModel, (["ab", "b"], ["ba", "a"]), {"epochs": 1, "window": 1}),
        (fg.GeneralizedRootModel, (counts,), {"alpha": 0.1, "max_iter": 5, "tol": 1e-3}),
        (MRFClassifier, (nodes, [[1, 1], [0, 0], [1, 1]]), {"graph": graph, "max_iter": 5}),
        (Aligner, (pairs,), {"max_iter": 2}),
    ):
        parameters = inspect.signature(kind).parameters.values()
        given = {p.name: p.default for p in parameters if p.default is not p.empty} | settings
        given.pop("n_jobs", None)  # a process for each

        add(f"{kind.__name__}.fit", _fitted(kind, data), **given)


def _fitted(kind: type, data: tuple[Any, ...]) -> Callable[..., None]:
    def fitted(**settings: Any) -> None:
        kind(**settings).fit(*data)

    return fitted
