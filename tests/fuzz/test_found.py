"""Calls that the fuzzer found after those of `test_fuzz`."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad import costs

AB = fg.Alphabet("ab")
EDIT = fg.EditDistance(AB)


def test_a_loss_automaton_is_no_source_of_costs():
    with pytest.raises(fg.InvalidInputError, match="source is a LossAutomaton"):
        costs.pair_transducer(EDIT.compile("ab"), AB)


@pytest.mark.parametrize("band", [2**63 - 1, 10**30, (-(10**30), 10**30)])
def test_bands_beyond_all_lengths_are_all_alignments(band):
    y = np.array([0, 1, 1])
    assert EDIT.compile("ab", 3, band=band).loss(y) == EDIT(y, "ab")


@pytest.mark.parametrize("single_root", [True, False])
def test_a_sentence_of_one_word_has_one_tree_without_replacement(single_root):
    trees = fg.SpanningTrees(np.array([[0.0, 1.5], [0.0, 0.0]]), single_root=single_root)
    ((heads, log_p),) = trees.sample_without_replacement(3, 0)
    assert (heads.tolist(), log_p) == ([0], 0.0)


def test_complex_scores_are_refused_instead_of_cut():
    scores = np.full((4, 4), 1j)
    with pytest.raises(fg.InvalidInputError, match="complex numbers"):
        fg.SpanningTrees(scores, single_root=True)
    with pytest.raises(fg.InvalidInputError, match="complex numbers"):
        fg.StringDistribution(scores)


def test_a_single_root_with_an_arc_near_the_largest_float_has_a_finite_log_partition():
    scores = np.zeros((3, 3))
    scores[1, 2] = 1e308
    for family in (fg.ProjectiveTrees, fg.SpanningTrees):
        assert family(scores, single_root=True).log_partition() == 1e308
