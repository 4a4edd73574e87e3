"""GoldPaths: the paths with blanks of a batch that collapse to its gold strings (CTC).

A path has one label for each frame.  Runs of one label become one label, then blanks are removed:
connectionist temporal classification (Graves, Fernandez, Gomez, Schmidhuber 2006, section 3.1).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import (
    LARGEST_SCORE,
    BoolArray,
    FloatArray,
    IntArray,
    unusable_score,
    writable,
)
from fstgrad.core.distribution import FAR, log_probability
from fstgrad.core.errors import InfeasibleError
from fstgrad.core.uninitialized import empty
from fstgrad.strings import kernels
from fstgrad.strings.batches import Slices, in_one_slice
from fstgrad.strings.kernels.arguments import LOWEST


class Alignment(NamedTuple):
    """The best path of each item, with the frames of each gold label.

    Attributes
    ----------
    labels : (B, T) int64
        The label of each frame; -100 beyond the frames of an item.
    start, end : (B, S) int64
        Label i of gold is read in the frames start[i] .. end[i] - 1; -100 as padding.
    log_prob : (B,) float64
        log p(path) in nats, among all paths.
    """

    labels: IntArray
    start: IntArray
    end: IntArray
    log_prob: FloatArray


class GoldPaths:
    """The paths of each item that collapse to its gold string.

    Parameters
    ----------
    scores : (B, T, n) float32 or float64
        Log-weights of labels in nats; -inf forbids.  Entries beyond the frames are ignored.
    targets : B sequences of ids, without blanks
    frames : (B,) int
        The number of frames of each item, 0 .. T.
    blank : int
        The id of the blank.
    slices : callable
        slices(B, run) calls run(low, high) for slices of 0 .. B - 1, possibly in threads.

    Raises
    ------
    InvalidInputError
        A score is NaN, +inf or above 1e300.
    InfeasibleError
        A gold string needs more frames than its item has, or all labels of a frame have -inf.

    Examples
    --------
    >>> import numpy as np
    >>> paths = GoldPaths(np.zeros((1, 2, 2)), [np.array([1])], np.array([2]), 0)
    >>> float(np.exp(-paths.nll()[0][0]).round(12))  # 3 of 4 paths: _a, a_, aa
    0.75
    """

    def __init__(
        self,
        scores: npt.NDArray[np.floating],
        targets: Sequence[IntArray],
        frames: IntArray,
        blank: int,
        slices: Slices = in_one_slice,
    ) -> None:
        self.scores = writable(np.asarray(scores, dtype=np.float64))
        self.blank, self.slices = blank, slices
        self.sizes = np.stack([frames, [len(y) for y in targets]], axis=1).astype(np.int64)
        self.targets = np.full((len(targets), self.sizes[:, 1].max(initial=0)), blank)
        for row, y in zip(self.targets, targets, strict=True):
            row[: len(y)] = y
        self._check_sizes()
        self._inside = np.arange(self.scores.shape[1]) < self.sizes[:, :1]
        self._offsets = np.floor(self._maxima())  # as in the kernel

    def nll(self, *, is_normalized: bool = True) -> tuple[FloatArray, FloatArray]:
        """Return -log p(gold) (B,) in nats and its gradient (B, T, n), exact; O(B T S).

        If not `is_normalized`, p(gold) is the sum of exp(`relative_scores`) over the paths of gold.

        Raises
        ------
        InfeasibleError
            Every path of a gold string has a score of -inf.
        """
        values, gradient = empty(len(self.scores)), np.zeros(self.scores.shape)
        self._run(is_normalized, None, values, gradient)
        self._check_allowed(values == np.inf)
        with np.errstate(over="ignore"):
            self._restore_masks(values, gradient)
        self._check_allowed(values == np.inf)  # several masks of finfo.min on every path
        return values, gradient

    def hessian_product(self, direction: FloatArray, *, is_normalized: bool = True) -> FloatArray:
        """Return the Hessian of `nll` times a direction (B, T, n), exact; O(B T S)."""
        product, values = np.zeros(self.scores.shape), empty(len(self.scores))
        self._run(is_normalized, np.ascontiguousarray(direction), values, product)
        return product

    def best(self) -> Alignment:
        """Return the path of largest score of each item; O(B T S).

        Of equal paths, the one whose last label ends first and begins first, then the label before,
        and so on.

        Raises
        ------
        InfeasibleError
            Every path of a gold string has a score of -inf.
        """
        items, length, _ = self.scores.shape
        states, values = np.full((items, length), -1), empty(items)

        def run(low: int, high: int) -> None:
            part = slice(low, high)
            given = self.scores[part], self.targets[part], self.sizes[part], self.blank
            kernels.ctc.best_paths(*given, values[part], states[part])

        self.slices(items, run)
        self._check_allowed(values == -np.inf)
        labels = np.full((items, length), -100)
        start, end = np.full((2, *self.targets.shape), -100)
        for i, (frames, size) in enumerate(self.sizes.tolist()):
            own, y = states[i, :frames], self.targets[i, :size]
            reads = 2 * np.arange(size) + 1  # the states of the labels of gold
            labels[i, :frames] = np.where(own % 2 == 1, np.append(y, 0)[own // 2], self.blank)
            start[i, :size] = np.searchsorted(own, reads, side="left")
            end[i, :size] = np.searchsorted(own, reads, side="right")
        relative = np.where(self._inside[..., None], self.scores, 0.0) - self._offsets[..., None]
        log_z = np.log(np.exp(relative).sum(axis=2)).sum(axis=1, where=self._inside)
        return Alignment(labels, start, end, log_probability(self.relative_scores(labels), log_z))

    def relative_scores(self, labels: IntArray) -> FloatArray:
        """Return the scores (B,) of paths (B, T), less the integer offset of each frame."""
        chosen = np.take_along_axis(self.scores, np.maximum(labels, 0)[..., None], axis=2)[..., 0]
        total: FloatArray = (chosen - self._offsets).sum(axis=1, where=self._inside)
        return total

    def _run(
        self,
        is_normalized: bool,
        direction: FloatArray | None,
        values: FloatArray,
        table: FloatArray,
    ) -> None:
        def run(low: int, high: int) -> None:
            part = slice(low, high)
            along = None if direction is None else direction[part]
            given = self.scores[part], self.targets[part], self.sizes[part], self.blank
            kernels.ctc.gold_posteriors(*given, is_normalized, along, values[part], table[part])

        self.slices(len(self.scores), run)

    def _check_sizes(self) -> None:
        same = (self.targets[:, 1:] == self.targets[:, :-1]) & (self.targets[:, 1:] != self.blank)
        needed = self.sizes[:, 1] + same.sum(axis=1)
        reasons = {}
        for i in np.flatnonzero(needed > self.sizes[:, 0]).tolist():
            frame = "frame" if needed[i] == 1 else "frames"  # a repeated label needs a blank
            reasons[i] = f"gold needs {needed[i]} {frame}, has {self.sizes[i, 0]}"
        if reasons:
            raise InfeasibleError.of_items(reasons)

    def _maxima(self) -> FloatArray:
        """Return the largest score of each frame, 0 beyond the frames; raise if one is unusable."""
        largest: FloatArray = self.scores.max(axis=2, initial=-np.inf)
        largest[~self._inside] = 0.0
        for i, t in np.argwhere(~(largest <= LARGEST_SCORE)):
            raise unusable_score(f"the largest of scores[{i}, {t}]", largest[i, t])
        forbidden = largest == -np.inf
        if forbidden.any():
            first = forbidden.argmax(axis=1)
            raise InfeasibleError.of_items(
                {
                    i: f"scores is -inf for all labels of frame {first[i]}"
                    for i in np.flatnonzero(forbidden.any(axis=1)).tolist()
                }
            )
        return largest

    def _restore_masks(self, values: FloatArray, gradient: FloatArray) -> None:
        """Add to the values what the kernel leaves out of scores below `LOWEST`."""
        if self.scores.size and self.scores.min() - self._offsets.max() >= LOWEST:
            return
        depth = self.scores - self._offsets[..., None]
        masked = self._inside[..., None] & (depth < LOWEST) & (depth > -np.inf)
        small = np.where(np.abs(self._offsets) <= FAR, self._offsets, 0.0)
        missing = np.where(masked, LOWEST - small[..., None] - depth, 0.0)
        values -= (missing * gradient).sum(axis=(1, 2))  # there, the gradient is minus a posterior

    def _check_allowed(self, are_forbidden: BoolArray) -> None:
        """Raise InfeasibleError if every path of some items is forbidden."""
        if are_forbidden.any():
            reason = (
                "gold has a score of -inf on every path: allow its labels and the blank, "
                f"{self.blank}, in more frames"
            )
            raise InfeasibleError.of_items(
                dict.fromkeys(np.flatnonzero(are_forbidden).tolist(), reason)
            )
