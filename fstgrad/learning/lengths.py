"""LengthModel: the length of the output for an input."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fstgrad.core.checks import IntArray, index_array, positive_integer, positive_number
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import fields

_LONGEST = 2**53


@dataclass(frozen=True)
class LengthModel:
    """The median length of the targets for each |x|; for other |x|, the median ratio times |x|.

    If x and y have the same length in all pairs of the data, this is |x|.

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

    def __post_init__(self) -> None:
        """Check the lengths."""
        inputs = index_array("inputs", self.inputs, _LONGEST, (None,))
        object.__setattr__(self, "inputs", inputs)
        outputs = index_array("outputs", self.outputs, _LONGEST, (len(inputs),), lower=1)
        object.__setattr__(self, "outputs", outputs)
        if (np.diff(inputs) <= 0).any():
            raise InvalidInputError(f"inputs is {inputs}; give lengths that ascend")
        vars(self).update(ratio=positive_number("ratio", self.ratio, allow_zero=True))

    @classmethod
    def fit(cls, pairs: Iterable[tuple[int, int]]) -> "LengthModel":
        """Return the model of pairs (|x|, |y|)."""
        seen: dict[int, list[int]] = defaultdict(list)
        for source, target in fields("pairs", pairs, 2):
            source = positive_integer("|x|", source, minimum=0)
            seen[source].append(positive_integer("|y|", target, minimum=0))
        inputs = sorted(seen)
        ratios = [target / source for source in inputs if source for target in seen[source]]
        return cls(
            np.array(inputs, dtype=np.int64),
            np.array([_rounded(float(np.median(seen[i]))) for i in inputs], dtype=np.int64),
            float(np.median(ratios)) if ratios else 1.0,
        )

    def __call__(self, size: int) -> int:
        """Return the length of the output for |x| = size."""
        size = positive_integer("size", size, minimum=0)
        known = self._known.get(size)
        return _rounded(self.ratio * size) if known is None else known

    @cached_property
    def _known(self) -> dict[int, int]:
        return dict(zip(self.inputs.tolist(), self.outputs.tolist(), strict=True))


def _rounded(number: float) -> int:
    return max(1, int(np.floor(number + 0.5)))
