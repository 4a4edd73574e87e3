"""The losses of the hypotheses in n-best lists."""

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.uninitialized import empty
from fstgrad.losses import Loss
from fstgrad.losses.automata.kernels.arguments import Strings
from fstgrad.losses.cache import AutomatonCache
from fstgrad.losses.evaluation import has_dynamic_program, losses_of_strings
from fstgrad.objectives.base import ALONE, Array, Arrays, Objective, Team
from fstgrad.objectives.strings import IGNORED, check_ids

_TARGETS = AutomatonCache()
SMALL = 2**21  # alignment cells of a batch; below this, threads cost more than they save


class NbestLosses(Objective):
    """The losses (B, N) of hypotheses (B, N, L) against references (B, L'); +inf for padding.

    Constants are the hypotheses and the references, ids padded with `IGNORED`, the numbers of
    hypotheses (B,), and the log-weights of the hypotheses (B, N).
    """

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def measure(self, constants: Arrays, team: Team = ALONE) -> Array:
        """Return the losses (B, N) float64 in nats.

        Raises
        ------
        InvalidInputError
            An id is not a symbol, a number of hypotheses is not in 0 .. N, or a log-weight is NaN.
        InfeasibleError
            Lists have no hypothesis with a finite loss and a log-weight above -inf.
        """
        table, golds, counts, log_weights = constants
        n, room = len(self.loss.alphabet), table.shape[1]
        check_ids(list(golds), n, "references")
        wrong = (counts < 0) | (counts > room)
        if wrong.any():
            i = int(np.argmax(wrong))
            raise InvalidInputError(
                f"lengths[{i}] is {int(counts[i])}; give 1 to {room}, the hypotheses of a list"
            )
        listed = np.arange(room) < counts[:, None]
        if not (log_weights[listed] < np.inf).all():
            raise InvalidInputError("log_probs holds NaN or +inf; give log-weights")
        _check_hypotheses(table, listed, n)
        result = np.full(table.shape[:2], np.inf)
        if has_dynamic_program(self.loss):
            self._pairs(table, golds, listed, result, team)
        else:
            for i, (rows, gold) in enumerate(zip(table, golds, strict=True)):
                result[i, listed[i]] = self._losses(rows[listed[i]], gold[gold != IGNORED])
        _check_feasible(np.isfinite(result), listed, listed & (log_weights > -np.inf))
        return result

    def _pairs(
        self, table: IntArray, golds: IntArray, listed: Array, result: FloatArray, team: Team
    ) -> None:
        """Write the losses of all lists to `result`, with one call per thread."""
        y, z = _strings(table[listed]), _strings(golds)
        pairs = np.column_stack([np.arange(len(y.first) - 1), np.nonzero(listed)[0]])
        losses = empty(len(pairs))

        def run(low: int, high: int) -> None:
            losses[low:high] = losses_of_strings(self.loss, y, z, pairs[low:high])

        share = team if len(y.ids) * golds.shape[1] > SMALL else ALONE
        share.slices(len(pairs), run)
        result[listed] = losses

    def _losses(self, rows: IntArray, target: IntArray) -> FloatArray:
        """Return the losses of padded hypotheses (N, L); evaluate equal lengths together."""
        against = _TARGETS.target_loss(self.loss, target)
        sizes = np.count_nonzero(rows != IGNORED, axis=1)
        losses = empty(len(rows))
        for size in np.unique(sizes):
            same = np.flatnonzero(sizes == size)
            block = rows[same]
            losses[same] = against.losses_of(block[block != IGNORED].reshape(len(same), size))
        return losses


def _check_feasible(finite: BoolArray, listed: BoolArray, allowed: BoolArray) -> None:
    """Raise InfeasibleError if a list has no hypothesis that is finite and allowed."""
    reasons = {}
    for i in np.flatnonzero(~(finite & allowed).any(axis=1)).tolist():
        if not listed[i].any():
            reasons[i] = "hypotheses is empty"
        elif not finite[i].any():
            reasons[i] = "hypotheses has no hypothesis of finite loss against its reference"
        else:
            reasons[i] = "log_probs is -inf for every hypothesis of finite loss"
    if reasons:
        raise InfeasibleError.of_items(reasons)


def _strings(rows: IntArray) -> Strings:
    """Return padded strings (N, L) concatenated, without padding."""
    inside = rows != IGNORED
    return Strings(
        rows[inside].astype(np.int64, copy=False),
        np.concatenate([[0], np.cumsum(inside.sum(axis=1))]),
    )


def _check_hypotheses(table: IntArray, listed: Array, n: int) -> None:
    """Raise InvalidInputError if an id of a listed hypothesis is not a symbol."""
    wrong = listed[..., None] & (table != IGNORED) & ((table < 0) | (table >= n))
    if wrong.any():
        i, j, position = np.argwhere(wrong)[0].tolist()
        raise InvalidInputError(
            f"hypotheses[{i}, {j}] has the id {table[i, j, position]} at position {position}; the "
            f"loss is for {n} symbols, so give 0 to {n - 1}, or the ignore_index"
        )
