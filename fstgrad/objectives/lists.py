"""The losses of hypotheses of n-best lists."""

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.errors import InvalidInputError
from fstgrad.losses import Loss
from fstgrad.losses.cache import AutomatonCache
from fstgrad.objectives.base import Array, Arrays, Objective
from fstgrad.objectives.strings import IGNORED, check_ids

_TARGETS = AutomatonCache()


class NbestLosses(Objective):
    """The losses (B, N) of hypotheses (B, N, L) against references (B, L'); +inf for padding."""

    def __init__(self, loss: Loss) -> None:
        self.loss = loss

    def measure(self, constants: Arrays) -> Array:
        """Return the losses in nats."""
        table, golds, counts = constants
        n = len(self.loss.alphabet)
        check_ids(list(golds), n)
        result = np.full(table.shape[:2], np.inf)
        for i, (rows, gold) in enumerate(zip(table, golds, strict=True)):
            count = int(counts[i])
            if not 0 < count <= len(rows):
                raise InvalidInputError(
                    f"lengths[{i}] is {count}; hypotheses[{i}] has room for {len(rows)}"
                )
            target = gold[gold != IGNORED]
            if len(target) == 0:
                raise InvalidInputError(f"references[{i}] is empty; give at least one symbol")
            result[i, :count] = self._losses(rows[:count], target)
            if not np.isfinite(result[i, :count]).any():
                raise InvalidInputError(
                    f"hypotheses[{i}] has no hypothesis of finite loss against references[{i}]; "
                    "use a loss with smoothing > 0"
                )
        return result

    def _losses(self, rows: IntArray, target: IntArray) -> FloatArray:
        """Return the losses of padded hypotheses (N, L), those of one length together."""
        against = _TARGETS.target_loss(self.loss, target)
        sizes = np.count_nonzero(rows != IGNORED, axis=1)
        found = np.empty(len(rows))
        for size in np.unique(sizes):
            same = np.flatnonzero(sizes == size)
            block = rows[same]
            found[same] = against.losses_of(block[block != IGNORED].reshape(len(same), size))
        return found
