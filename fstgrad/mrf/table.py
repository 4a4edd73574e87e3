"""The score table of a pairwise model: one array for nodes, one for edges."""

from typing import NamedTuple

from fstgrad.checks import FloatArray


class Table(NamedTuple):
    """Scores, marginals, parts or gradients of a pairwise model.

    Attributes
    ----------
    node : (I, C) float64
        One entry for each node and label.
    edge : (E, C, C) float64, or (C, C) where all edges share their scores
        `edge[e, c, d]`: label c at `edges[e, 0]` and label d at `edges[e, 1]`.
    """

    node: FloatArray
    edge: FloatArray
