"""What is wrong is an error of fstgrad: at once, while jit traces, or when the compiled runs."""

import contextlib
import inspect
import re

import numpy as np
import pytest

import fstgrad as fg

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
import jax.numpy as jnp  # noqa: E402

import fstgrad.jax as fgj  # noqa: E402
from tests.jax.cases import (  # noqa: E402
    ABC,
    EDIT,
    GOLD,
    GRAPH,
    HEADS,
    HYPOTHESES,
    KERNELS,
    LATTICES,
    PICTURES,
    TEXTS,
    WRITTEN,
)
from tests.tables import Column, Frame  # noqa: E402

S, T = np.zeros((2, 4, 3)), np.zeros((2, 4, 4))
ROOT = {"single_root": True}
ARCS = max(lattice.num_arcs for lattice in LATTICES)

# what is wrong: a function of scores, the scores, a part of the message
WRONG = {
    "one axis": (lambda s: fgj.softmax_margin(s, GOLD, EDIT), np.zeros((4, 3)), "scores has the"),
    "no loss": (lambda s: fgj.risk(s, GOLD, None), S, "loss is None"),
    "a word": (lambda s: fgj.risk(s, GOLD, "edit"), S, "loss is a str; give a Loss"),
    "gold too long": (lambda s: fgj.crf_nll(s[:, :2], GOLD), S, "give scores for each position"),
    "gold id": (lambda s: fgj.crf_nll(s, np.full((2, 4), 7)), S, r"gold\[0\] has the id 7"),
    "gold below": (lambda s: fgj.risk(s, np.full((2, 4), -7), EDIT), S, r"gold\[0\] has the id"),
    "gold of floats": (lambda s: fgj.crf_nll(s, GOLD * 1.0), S, "gold is float64; give integers"),
    "gold empty": (lambda s: fgj.crf_nll(s, np.full((2, 4), -100)), S, r"gold\[0\] has no pos"),
    "lengths": (lambda s: fgj.crf_nll(s, GOLD, lengths=[5, 1]), S, r"lengths\[0\] is 5"),
    "method": (lambda s: fgj.risk(s, GOLD, EDIT, method="best"), S, "method is 'best'"),
    "blank": (lambda s: fgj.ctc_nll(s, WRITTEN, blank=3), S, "blank is 3"),
    "blank in gold": (lambda s: fgj.ctc_nll(s, WRITTEN, blank=2), S, r"gold\[0\] has the blank, 2"),
    "ctc id": (lambda s: fgj.ctc_nll(s, WRITTEN + 2), S, r"gold\[0\] has the id"),
    "ctc below": (lambda s: fgj.ctc_nll(s, WRITTEN - 5), S, r"gold\[0\] has the id"),
    "ctc too short": (lambda s: fgj.ctc_nll(s[:, :1], WRITTEN), S, "gold|target"),
    "ctc loss": (lambda s: fgj.ctc_risk(s, WRITTEN, EDIT), np.zeros((2, 4, 5)), "over 3 symbols"),
    "transitions": (lambda s: fgj.linear_chain_nll(s, np.zeros((2, 2)), GOLD), S, "transitions"),
    "tag": (lambda s: fgj.linear_chain_nll(s, np.zeros((3, 3)), GOLD + 1), S, "has the tag 3"),
    "mask": (
        lambda s: fgj.linear_chain_nll(s, np.zeros((3, 3)), GOLD, np.ones((2, 4))), S, "mask is"
    ),
    "start": (
        lambda s: fgj.linear_chain_nll(s, np.zeros((3, 3)), GOLD, start=np.zeros(2)), S, "start has"
    ),
    "list": (lambda s: fgj.nbest_risk(s, HYPOTHESES, GOLD, EDIT), np.zeros((2, 3)), "hypotheses"),
    "list id": (
        lambda s: fgj.nbest_risk(s, HYPOTHESES + 2, GOLD, EDIT), np.zeros((2, 2)), "3|4"
    ),
    "arcs": (lambda s: fgj.lattice_risk(s[:, :2], LATTICES, TEXTS, EDIT), np.zeros((2, ARCS)),
             "scores has the shape"),
    "text": (lambda s: fgj.lattice_crf_nll(s, LATTICES, ["ab", "zz"]), np.zeros((2, ARCS)), "z"),
    "cap": (
        lambda s: fgj.lattice_risk(s, LATTICES, TEXTS, EDIT, cap=1.0, method="auto"),
        np.zeros((2, ARCS)), "cap needs method",
    ),
    "tree": (lambda s: fgj.spanning_tree_nll(s, HEADS, **ROOT), np.zeros((4, 4)), "scores has the"),
    "not square": (lambda s: fgj.spanning_tree_nll(s[:, 1:], HEADS, **ROOT), T, "scores has the"),
    "heads": (lambda s: fgj.spanning_tree_nll(s, HEADS[:, :2], **ROOT), T, "heads has the shape"),
    "cycle": (lambda s: fgj.spanning_tree_nll(s, HEADS * 0 + 2, **ROOT), T, "heads"),
    "costs": (lambda s: fgj.spanning_tree_risk(s, T * np.nan, **ROOT), T, "costs holds NaN"),
    "costs shape": (lambda s: fgj.spanning_tree_risk(s, T[:, 1:], **ROOT), T, "costs has the"),
    "field": (lambda n: fgj.mrf_nll(n, np.zeros((2, 2)), HEADS, GRAPH),
              np.zeros((3, 2)), "node"),
    "label": (lambda n: fgj.mrf_nll(n, np.zeros((2, 2)), HEADS + 2, GRAPH), np.zeros((2, 3, 2)),
              "gold"),
    "edges": (lambda n: fgj.mrf_nll(n, np.zeros((3, 2, 2)), HEADS, GRAPH), np.zeros((2, 3, 2)),
              "2 edges"),
    "graph": (lambda n: fgj.mrf_nll(n, np.zeros((2, 2)), HEADS, None),
              np.zeros((2, 3, 2)), "graph"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_at_once_and_while_jit_traces(name):
    call, scores, words = WRONG[name]
    for run in (call, jax.jit(call), jax.grad(lambda s: call(s).sum())):
        with pytest.raises(fg.FstgradError, match=words):
            run(jnp.asarray(scores))


@pytest.mark.parametrize("gold", [np.full((2, 4), 7), np.full((2, 4), -100)])
def test_what_jit_could_not_know_ends_with_the_message(gold):
    loss = jax.jit(lambda s, g: fgj.risk(s, g, EDIT).sum())
    with pytest.raises(jax.errors.JaxRuntimeError) as caught:
        loss(jnp.zeros((2, 4, 3)), gold).block_until_ready()
    last = str(caught.value).strip().splitlines()[-1]
    assert re.search(r"(InvalidInputError: |InfeasibleError: 2 items .*: )gold\[0\] ", last)
    assert "fstgrad/objectives" not in str(caught.value)


def test_scores_of_nan():
    with pytest.raises(fg.InvalidInputError, match="is nan"):
        fgj.crf_nll(jnp.full((2, 4, 3), jnp.nan), GOLD)


def test_scores_of_no_kind():
    with pytest.raises(fg.InvalidInputError, match="scores"):
        fgj.crf_nll("scores", GOLD)
    with pytest.raises(fg.InvalidInputError, match="complex"):
        fgj.crf_nll(jnp.zeros((2, 4, 3), complex), GOLD)


def test_an_alphabet_of_another_size():
    with pytest.raises(fg.FstgradError):
        fgj.risk(jnp.zeros((2, 4, 5)), GOLD, fg.EditDistance(ABC))


# every function with right arguments; each is replaced by what is wrong
RIGHT = {
    "softmax_margin": {"scores": S, "gold": GOLD, "loss": EDIT},
    "risk": {"scores": S, "gold": GOLD, "loss": EDIT},
    "crf_nll": {"scores": S, "gold": GOLD},
    "ctc_align": {"scores": S, "gold": WRITTEN},
    "ctc_nll": {"scores": S, "gold": WRITTEN},
    "ctc_softmax_margin": {"scores": S, "gold": WRITTEN, "loss": EDIT},
    "ctc_risk": {"scores": S, "gold": WRITTEN, "loss": EDIT},
    "linear_chain_nll": {"emissions": S, "transitions": np.zeros((3, 3)), "gold": GOLD},
    "nbest_risk": {"log_probs": np.zeros((2, 2)), "hypotheses": HYPOTHESES, "references": GOLD,
                   "loss": EDIT},
    "lattice_log_partition": {"scores": np.zeros((2, ARCS)), "lattice": LATTICES},
    "lattice_marginals": {"scores": np.zeros((2, ARCS)), "lattice": LATTICES},
    "lattice_entropy": {"scores": np.zeros((2, ARCS)), "lattice": LATTICES},
    "lattice_softmax_margin": {"scores": np.zeros((2, ARCS)), "lattice": LATTICES, "gold": TEXTS,
                               "loss": EDIT},
    "lattice_risk": {"scores": np.zeros((2, ARCS)), "lattice": LATTICES, "gold": TEXTS,
                     "loss": EDIT},
    "lattice_crf_nll": {"scores": np.zeros((2, ARCS)), "lattice": LATTICES, "gold": TEXTS},
    "spanning_tree_log_partition": {"scores": T, **ROOT},
    "spanning_tree_marginals": {"scores": T, **ROOT},
    "spanning_tree_entropy": {"scores": T, **ROOT},
    "spanning_tree_nll": {"scores": T, "heads": HEADS, **ROOT},
    "spanning_tree_partial_nll": {"scores": T, "allowed": HEADS, **ROOT},
    "spanning_tree_kl": {"p_scores": T, "q_scores": T, **ROOT},
    "spanning_tree_risk": {"scores": T, "costs": T, **ROOT},
    "spanning_tree_generalized_expectation": {"scores": T, "features": T[..., None],
                                              "target": np.zeros(1), **ROOT},
    "mrf_nll": {"node_scores": np.zeros((2, 3, 2)), "edge_scores": np.zeros((2, 2)), "gold": HEADS,
                "graph": GRAPH},
    "mrf_log_partition": {"node_scores": np.zeros((2, 3, 2)), "edge_scores": np.zeros((2, 2)),
                          "graph": GRAPH},
    "mrf_marginals": {"node_scores": np.zeros((2, 3, 2)), "edge_scores": np.zeros((2, 2)),
                      "graph": GRAPH},
    "mrf_dense_marginals": {"node_scores": np.zeros((2, 3, 4, 5)), "image": PICTURES,
                            "kernels": KERNELS},
    "Strings": {"scores": S},
    "LatticeStrings": {"scores": np.zeros((2, ARCS)), "lattices": LATTICES},
    "CRF": {"emissions": S, "transitions": np.zeros((3, 3))},
    "Trees": {"scores": T, **ROOT},
    "RandomFields": {"node_scores": np.zeros((2, 3, 2)), "edge_scores": np.zeros((2, 2)),
                     "graph": GRAPH},
}  # fmt: skip
JUNK = [None, -1, 2.5, "ab", [], {}, np.zeros(0), np.full((2, 4, 3), np.nan), T == 0, object(),
        np.zeros((2, 4), complex), np.array([["a", "b"]]), np.full((2, 4), 2**40)]  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # some of it is right, but large or unreliable
@pytest.mark.parametrize("name", RIGHT)
def test_every_argument_wrong_in_every_way(name):
    assert set(RIGHT) == set(fgj.__all__) - {"CTCAlignment", "Estimate", "Sampling", "function_of"}
    function = getattr(fgj, name)
    for parameter in inspect.signature(function).parameters.values():
        for wrong in JUNK if parameter.kind is not parameter.VAR_KEYWORD else ():
            with contextlib.suppress(fg.FstgradError):  # anything else is a failure
                found = function(**{**RIGHT[name], parameter.name: wrong})
                if hasattr(found, "decode"):
                    found.decode()


def test_no_lattices():
    with pytest.raises(fg.InvalidInputError, match="scores have no items"):
        fgj.LatticeStrings([], [])


def test_one_score_of_dense_fields_that_is_nan():
    given = dict(RIGHT["mrf_dense_marginals"])
    given["node_scores"] = np.array(given["node_scores"])
    given["node_scores"][1, 2, 3, 0] = np.nan
    with pytest.raises(fg.InvalidInputError, match="NaN"):
        fgj.mrf_dense_marginals(**given)


RAGGED = {
    "ids": lambda: fgj.crf_nll(S, [[0, 1], [2]]),
    "ctc": lambda: fgj.ctc_nll(S, [[0], [1, 0]], blank=2),
    "hypotheses": lambda: fgj.nbest_risk(np.zeros((1, 2)), [[[0], [1, 2]]], [[0]], EDIT),
}


@pytest.mark.parametrize("call", RAGGED.values(), ids=RAGGED)
def test_rows_of_different_lengths(call):
    with pytest.raises(fg.InvalidInputError, match="has rows of different lengths; give an array"):
        call()


def test_columns_tables_and_masks():
    gold = [[0, 1, 2, 0], [1, 1, 0, 2]]
    expected = fgj.crf_nll(S, np.array(gold))
    np.testing.assert_array_equal(fgj.crf_nll(S, Column(gold, index=[7, 3])), expected)
    np.testing.assert_array_equal(fgj.crf_nll(S, Frame(gold)), expected)
    with pytest.raises(fg.InvalidInputError, match="gold has the labels columns d, c, b, a, but"):
        fgj.crf_nll(S, Frame(gold, columns=[*"dcba"]))
    hidden = np.ma.array(gold, mask=np.eye(2, 4))
    with pytest.raises(fg.InvalidInputError, match="gold has masked entries; fill them"):
        fgj.crf_nll(S, hidden)
    with pytest.raises(fg.InvalidInputError, match="scores has masked entries; fill them"):
        fgj.crf_nll(np.ma.array(S, mask=S == 0), np.array(gold))
