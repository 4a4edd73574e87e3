"""Errors name what is wrong by the name that the caller knows, and their advice can be followed."""

import importlib
import inspect
import re

import numpy as np
import pytest

import fstgrad as fg

ABC = fg.Alphabet("ab")
EDIT = fg.EditDistance(ABC)
LATTICE = fg.Lattice.from_nbest(["ab", "b"], np.zeros(2), ABC)
GRAPH = fg.PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), np.array([[0, 1]]))
IDS, TREES, HEADS = np.array([[0, 1], [1, 1]]), np.zeros((2, 3, 3)), np.array([[0, 1], [2, 0]])
# right arguments by name, for the first prefix of a function that fits
RIGHT = {
    "ctc": {"scores": np.zeros((2, 4, 3)), "gold": np.array([[1], [2]]),
            "loss": fg.EditDistance(fg.Alphabet("_ab"))},
    "lattice": {"scores": np.zeros((2, LATTICE.num_arcs)), "lattice": [LATTICE] * 2,
                "gold": ["ab", "b"], "loss": EDIT},
    "spanning_tree": {"scores": TREES, "p_scores": TREES, "q_scores": TREES, "gold": HEADS,
                      "heads": HEADS, "allowed": HEADS, "costs": TREES, "single_root": True,
                      "features": TREES[..., None], "target": np.zeros(1)},
    "mrf_dense": {"node_scores": np.zeros((2, 4, 4)), "image": np.zeros((4, 4)),
                  "kernels": [importlib.import_module("fstgrad.mrf.dense").Kernel(0.5, 1.0)]},
    "mrf": {"node_scores": np.zeros((2, 2, 2)), "edge_scores": np.zeros((2, 2)), "gold": IDS,
            "graph": GRAPH},
    "linear_chain": {"emissions": np.zeros((2, 2, 2)), "transitions": np.zeros((2, 2)),
                     "gold": IDS},
    "nbest": {"log_probs": np.zeros((2, 1)), "hypotheses": IDS[:, None], "references": IDS,
              "loss": EDIT},
    "": {"scores": np.zeros((2, 2, 2)), "gold": IDS, "loss": EDIT},
}  # fmt: skip
BROKEN = {
    "another type": lambda value: object(),
    "a number": lambda value: np.zeros((), value.dtype) if isinstance(value, np.ndarray) else 3,
    "one axis more": lambda value: value[..., None] if isinstance(value, np.ndarray) else [[value]],
    "beyond": lambda value: value + 9 if getattr(value, "dtype", None) == IDS.dtype else "zz",
}


def functions(framework):
    package = pytest.importorskip(f"fstgrad.{framework}")
    for name in package.__all__:
        public = getattr(package, name)
        if inspect.isfunction(public) and name.split("_")[-1] not in ("of", "paths"):
            known = next(right for start, right in RIGHT.items() if name.startswith(start))
            names = inspect.signature(public).parameters
            yield name, public, {k: v for k, v in known.items() if k in names}


def error_of(call, **given):
    try:
        call(**given)
    except fg.FstgradError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_an_error_names_an_argument_of_the_function_that_was_called(framework):
    wrap = importlib.import_module("torch").tensor if framework == "torch" else np.asarray

    def converted(value):
        if framework == "torch" and isinstance(value, np.ndarray):
            return wrap(value)
        return value

    for name, function, right in functions(framework):
        if framework == "torch" and name.startswith("lattice"):
            right = right | {"scores": list(right["scores"])}
        given = {k: [*map(converted, v)] if isinstance(v, list) else converted(v)
                 for k, v in right.items()}  # fmt: skip
        function(**given)  # the arguments are right
        names = set(inspect.signature(function).parameters)
        for argument, value in right.items():
            for kind, change in BROKEN.items():
                message = error_of(function, **given | {argument: converted(change(value))})
                if not message:
                    continue  # another form of the same
                where = f"{name}({argument}: {kind}): {message}"
                words = set(re.findall(r"\w+", message))
                assert words & (names | {f"{n[:-1]}" for n in names}), where
                for option in re.findall(r"\b([a-z_]+)=(?!=)", message):
                    assert option in names | {"capacity"}, where


# a call that fails, and the same call with the advice of its message followed
ADVICE = {
    "a repeated label": (
        lambda t, f: f.ctc_nll(t.zeros(1, 2, 2), t.tensor([[1, 1]])),
        lambda t, f: f.ctc_nll(t.zeros(1, 2, 2), t.tensor([[1, 1]]), infeasible="zero"),
        "infeasible='zero'",
    ),
    "several roots": (
        lambda t, f: fg.SpanningTrees(np.zeros((3, 3)), single_root=True).nll([0, 0]),
        lambda t, f: fg.SpanningTrees(np.zeros((3, 3)), single_root=False).nll([0, 0]),
        "single_root=False",
    ),
    "a large automaton": (
        lambda t, f: f.risk(t.zeros(24, 26), t.arange(24), fg.EditDistance(LETTERS)),
        lambda t, f: f.risk(t.zeros(24, 26), t.arange(24), fg.EditDistance(LETTERS), cap=2.0),
        "cap=",
    ),
    "a band on a compiled loss": (
        lambda t, f: f.risk(t.zeros(2, 2), t.tensor([0, 1]), EDIT.compile("ab"), cap=1.0),
        lambda t, f: f.risk(t.zeros(2, 2), t.tensor([0, 1]), EDIT.compile("ab", cap=1.0)),
        "give cap, band or prune to compile",
    ),
    "a cap without a loss": (
        lambda t, f: f.softmax_margin(t.zeros(2, 2), t.tensor([0, 1]), cap=1.0),
        lambda t, f: f.softmax_margin(
            t.zeros(2, 2), t.tensor([0, 1]), fg.EditDistance(ABC), cap=1.0
        ),
        "give a loss too",
    ),
    "no n-gram in common": (
        lambda t, f: fg.NGram(ABC, 2).compile("a", 2),
        lambda t, f: fg.NGram(ABC, 2, smoothing=1.0).compile("a", 2),
        "smoothing > 0",
    ),
    "one symbol for a text": (
        lambda t, f: fg.Alphabet("ab").encode("abc"),
        lambda t, f: fg.Alphabet("abc").encode("abc"),
        "add it to the alphabet",
    ),
}
LETTERS = fg.Alphabet("abcdefghijklmnopqrstuvwxyz")


@pytest.mark.parametrize("name", ADVICE)
def test_following_the_advice_changes_the_outcome(name):
    torch = pytest.importorskip("torch")
    fgt = importlib.import_module("fstgrad.torch")
    broken, followed, advice = ADVICE[name]
    with pytest.raises(fg.FstgradError, match=re.escape(advice)):
        broken(torch, fgt)
    assert followed(torch, fgt) is not None


def test_gold_is_called_gold():
    """Not structure, labels, or sequence, whose names only other functions have."""
    b, zeros = EDIT.compile("ab"), np.zeros((2, 2))
    for call in (
        lambda: fg.softmax_margin(zeros, "abb", b), lambda: fg.softmax_margin(zeros, [[0, 1]]),
        lambda: fg.softmax_margin(zeros, 3), lambda: fg.hinge(zeros, [0, 7], b),
        lambda: GRAPH.hamming_costs([0, 5]), lambda: GRAPH.hamming_costs([[0, 1]]),
        lambda: GRAPH.softmax_margin([0, 5]), lambda: GRAPH.nll([0, 5]),
        lambda: fg.SpanningTrees(TREES[0], single_root=True).nll(3),
    ):  # fmt: skip
        with pytest.raises(fg.InvalidInputError, match=r"^gold"):
            call()


def test_no_advice_about_a_loss_where_there_is_none():
    forbidden = np.array([[[0.0, 0.0]] * 2, [[0.0, 0.0]] * 2])
    forbidden[1] = -np.inf
    with pytest.raises(fg.InfeasibleError) as caught:
        fg.StringDistribution(np.array([[0.0, 0.0], [-np.inf, -np.inf]])).log_partition()
    assert "smoothing" not in str(caught.value)
    assert "loss" not in str(caught.value)
    fgt = pytest.importorskip("fstgrad.torch")
    torch = importlib.import_module("torch")
    scores = torch.zeros(1, 3, 3).index_fill(2, torch.tensor([0]), -torch.inf)
    with pytest.raises(fg.InfeasibleError, match=r"the blank, 0") as caught:
        fgt.ctc_nll(scores, torch.tensor([[1, 1]]))
    assert "smoothing" not in str(caught.value)


def test_a_preview_shows_blanks():
    with pytest.raises(fg.AlphabetError, match=r"\(a ' '\)"):
        fg.Alphabet(["a", " "]).encode("q")
