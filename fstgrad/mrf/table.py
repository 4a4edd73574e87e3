"""The score table of a model: one array for nodes, one for edges, one for larger factors."""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.summary import short_repr

NO_FACTORS = np.zeros(0)
NO_FACTORS.flags.writeable = False


class _Pair(NamedTuple):
    node: FloatArray
    edge: FloatArray


class Table(_Pair):
    """Scores, marginals, parts or gradients of a model; unpacks as (node, edge).

    Attributes
    ----------
    node : (I, C) float64
        One entry for each node and label.
    edge : (E, C, C) float64, or (C, C) if all edges share their scores
        `edge[e, c, d]` is for label c at `edges[e, 0]` and label d at `edges[e, 1]`.
    factors : (cells,) float64
        One entry for each cell of each larger factor, as in `model.factors.table`; empty if there
        are none.
    """

    factors: FloatArray

    def __repr__(self) -> str:
        return short_repr(self)

    def __new__(
        cls, node: FloatArray, edge: FloatArray, factors: FloatArray = NO_FACTORS
    ) -> "Table":
        """Return the table of three arrays."""
        self = super().__new__(cls, node, edge)
        self.factors = factors
        return self
