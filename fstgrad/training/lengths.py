"""LengthModel: how long the output of an input is."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fstgrad.checks import IntArray


@dataclass(frozen=True)
class LengthModel:
    """The median length of the targets for each |x|; for other |x| the median ratio times |x|.

    Where all pairs of the data are aligned this is |x|.

    Attributes
    ----------
    inputs, outputs : (k,) int64
        The |x| of the data, ascending, and the lengths of their outputs, >= 1.
    ratio : float
        The median of |y| / |x|.

    Examples
    --------
    >>> lengths = LengthModel.fit([(2, 4), (2, 5), (2, 5), (4, 8)])
    >>> lengths(2), lengths(4), lengths(3)  # 3 times the median of 2, 2, 2.5, 2.5
    (5, 8, 7)
    """

    inputs: IntArray
    outputs: IntArray
    ratio: float

    @classmethod
    def fit(cls, pairs: Iterable[tuple[int, int]]) -> "LengthModel":
        """Return the model of pairs (|x|, |y|)."""
        seen: dict[int, list[int]] = defaultdict(list)
        for source, target in pairs:
            seen[source].append(target)
        inputs = sorted(seen)
        ratios = [target / source for source in inputs if source for target in seen[source]]
        return cls(
            np.array(inputs, dtype=np.int64),
            np.array([_rounded(float(np.median(seen[i]))) for i in inputs], dtype=np.int64),
            float(np.median(ratios)) if ratios else 1.0,
        )

    def __call__(self, size: int) -> int:
        """Return the length of the output for |x| = size."""
        place = int(np.searchsorted(self.inputs, size))
        if place < len(self.inputs) and self.inputs[place] == size:
            return int(self.outputs[place])
        return _rounded(self.ratio * size)


def _rounded(number: float) -> int:
    return max(1, int(np.floor(number + 0.5)))
