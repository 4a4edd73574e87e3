"""Bad input: each error names the argument, the values and the remedy."""

import numpy as np
import pytest

import fstgrad as fg

NODE, EDGE = np.zeros((3, 2)), np.zeros((2, 2, 2))
EDGES = [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((NODE, EDGE, [(0, 1), (1, 3)]), r"edges\[1, 1\] is 3; indices run from 0 to 2"),
        ((NODE, EDGE, [(0, 1), (2, 2)]), r"edges\[1\] joins node 2 to itself"),
        ((NODE, EDGE, [(0, 1), (1, 0)]), r"edges\[0\] and edges\[1\] join the same nodes"),
        ((NODE, EDGE, [(0, 1, 2)]), r"edges has shape \(1, 3\)"),
        ((NODE, EDGE, [(0, 1)]), r"edge_scores has shape \(2, 2, 2\); the shape must be \(1, 2, 2"),
        ((NODE[0], EDGE, EDGES), r"node_scores has shape \(2,\)"),
        ((NODE * np.nan, EDGE, EDGES), r"node_scores\[0, 0\] is nan"),
        ((NODE, EDGE + np.inf, EDGES), r"edge_scores\[0, 0, 0\] is inf"),
        ((np.zeros((0, 2)), np.zeros((0, 2, 2)), []), r"give at least one node and one label"),
        ((NODE, EDGE, EDGES, [2, 3, 2]), r"labels_per_node\[1\] is 3; indices run from 1 to 2"),
    ],
)
def test_bad_models(arguments, message):
    with pytest.raises(fg.InvalidInputError, match=message):
        fg.PairwiseMRF(*arguments)


def test_masks_are_no_scores():
    """True and False were 1 and 0 nats, which forbid nothing."""
    node, edge = NODE == 0, np.eye(2, dtype=bool)
    first, per_edge = fg.PairwiseMRF(NODE, EDGE, EDGES), [edge.tolist()] * 2
    calls = {
        "node_scores": [
            lambda: fg.PairwiseMRF(node, EDGE, EDGES),
            lambda: fg.PairwiseMRF(node.tolist(), EDGE, EDGES),
            lambda: fg.PairwiseMRF.grid(1, 3, node[None], EDGE),
            lambda: first.with_scores(node, EDGE),
            lambda: fg.PairwiseMRFBatch(first, node[None], EDGE),
        ],
        "edge_scores": [
            lambda: fg.PairwiseMRF(NODE, edge, EDGES),
            lambda: fg.PairwiseMRF(NODE, per_edge, EDGES),
            lambda: fg.PairwiseMRFBatch(first, NODE[None], [per_edge]),
        ],
        r"factors\[0\].table": [lambda: fg.PairwiseMRF.from_factors([2, 2], [((0, 1), edge)])],
    }
    for name, wrong in calls.items():
        for call in wrong:
            with pytest.raises(fg.InvalidInputError, match=rf"{name} has dtype bool.*np\.where"):
                call()
    allowed = fg.PairwiseMRF(np.where(node, 0, -np.inf), np.where(edge, 0, -np.inf), EDGES)
    assert allowed.log_partition() == pytest.approx(np.log(2))  # all 0 or all 1


@pytest.mark.parametrize("loop", [False, True])
def test_all_labelings_forbidden(loop):
    edges = [*EDGES, (2, 0)] if loop else EDGES
    forbid = np.where(np.eye(2) == 1, 0.0, -np.inf)
    node = np.array([[0, -np.inf], [0, 0], [-np.inf, 0]])
    model = fg.PairwiseMRF(node, forbid, edges)
    for call in (model.log_partition, model.marginals, model.mode, lambda: model.sample(1)):
        with pytest.raises(fg.InfeasibleError, match="Z = 0"):
            call()


def test_contradictory_evidence():
    model = fg.PairwiseMRF(NODE, EDGE, EDGES).condition({0: 1})
    with pytest.raises(fg.InfeasibleError, match=r"evidence\[0\] is 0, a label that"):
        model.condition({0: 0})
    with pytest.raises(fg.InvalidInputError, match=r"evidence\[0\] is 2; indices run from 0 to 1"):
        model.condition({0: 2})
    with pytest.raises(fg.InvalidInputError, match="evidence node"):
        model.condition({3: 0})
    with pytest.raises(fg.InvalidInputError, match=r"evidence\[0\] is 1.0; give an integer"):
        model.condition({0: 1.0})


@pytest.mark.parametrize("gold", [[0, 1], [0, 1, 2], [0, -2, 0], [0.5, 0, 0]])
def test_gold_out_of_range(gold):
    with pytest.raises(fg.InvalidInputError, match="gold"):
        fg.PairwiseMRF(NODE, EDGE, EDGES).nll(gold)


def test_too_wide_is_refused_before_tables_are_made():
    model = fg.PairwiseMRF.grid(64, 64, np.zeros((4096, 10)), np.eye(10))
    with pytest.raises(fg.MemoryLimitError, match=r"infer\('bp'\)"):
        model.log_partition()
    side = 60
    wide = fg.PairwiseMRF.grid(side, side, np.zeros((side**2, 2)), np.eye(2))
    for model in (wide, fg.PairwiseMRF(*wide.scores, wide.graph.edges)):
        with pytest.raises(fg.MemoryLimitError, match="max_memory"):
            model.log_partition()
    with pytest.raises(fg.MemoryLimitError, match="max_memory"):
        wide.marginals()
