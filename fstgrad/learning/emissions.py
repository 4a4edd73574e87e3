"""The emissions of a chunk: frequent names have a row of a table, others have a list.

A row costs n + 1 additions, which the processor vectorizes.  A list costs one addition for each
pair of the name and a symbol, one after another.
"""

from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.learning import kernels
from fstgrad.learning.template_features import Encoded, Pairs, TemplateFeatures

_OCCURRENCES = 2  # the least number of occurrences of a name with a row
_SYMBOLS = 6  # a name with a row is paired with at least 1 / _SYMBOLS of the symbols


class Emissions(NamedTuple):
    """The names of all positions of a chunk, and the pairs that have weights.

    Attributes
    ----------
    often, seldom : the names with rows and those with lists
    pairs : of all names, those with rows first
    rows : number of names with rows
    n : number of symbols
    """

    often: Encoded
    seldom: Encoded
    pairs: Pairs
    rows: int
    n: int

    @classmethod
    def of(cls, features: TemplateFeatures, encoded: Encoded) -> tuple["Emissions", IntArray]:
        """Return the emissions of a chunk and the indices of its weights, with q-grams last."""
        n = len(features.alphabet)
        names, own, counts = np.unique(encoded.ids, return_inverse=True, return_counts=True)
        first = features.pairs.first
        sizes = first[names + 1] - first[names]
        is_row = (counts >= _OCCURRENCES) & (sizes * _SYMBOLS >= n)
        order = np.argsort(~is_row, kind="stable")
        number = empty_like(order)
        number[order] = np.arange(len(order))
        pairs, support = features.chosen(names[order])
        ids, rows = number[own], int(is_row.sum())
        often = _only(encoded, ids, ids < rows)
        return cls(often, _only(encoded, ids, ids >= rows), pairs, rows, n), support

    def scores(self, w: FloatArray) -> FloatArray:
        """Return the emissions (positions, n) for weights w of the pairs."""
        single = empty((len(self.often.copies), self.n))
        kernels.templates.gather(*self.seldom, *self.pairs, w, single)
        if self.rows:
            table = np.zeros((self.rows, self.n + 1))
            kernels.templates.spread(*self.pairs, w, table)
            kernels.templates.gather_rows(*self.often, table, single)
        return single

    def adjoint(self, change: FloatArray, out: FloatArray) -> None:
        """Write the adjoint of `scores`, applied to (positions, n), to `out`: zeros like w."""
        kernels.templates.scatter(*self.seldom, *self.pairs, change, out)
        if self.rows:
            table = np.zeros((self.rows, self.n + 1))
            kernels.templates.scatter_rows(*self.often, change, table)
            kernels.templates.collect(*self.pairs, table, out)


def permuted(encoded: Encoded, order: IntArray) -> Encoded:
    """Return the positions in another order."""
    sizes = np.diff(encoded.starts)[order]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    ids = encoded.ids[np.repeat(encoded.starts[order] - starts[:-1], sizes) + np.arange(starts[-1])]
    return Encoded(starts, ids, encoded.copies[order])


def _only(encoded: Encoded, ids: IntArray, kept: np.ndarray) -> Encoded:
    """Return the positions with only those names that are marked in `kept`."""
    before = np.concatenate([[0], np.cumsum(kept)])
    return Encoded(before[encoded.starts], ids[kept], encoded.copies)
