"""Optimizers for minibatches: the updates of the weights by the gradient of each step.

The learning rate of both optimizers falls linearly to zero over the steps of the training, and both
apply the penalty l2/2 |w|^2 in every step.  "sgd" updates only the weights in the gradient; "adam"
updates all weights, because its moments and its penalty change every weight.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.learning import kernels
from fstgrad.learning.batch import Sums

Optimizer = Literal["adam", "sgd", "lbfgs"]
OPTIMIZERS: tuple[Optimizer, ...] = ("adam", "sgd", "lbfgs")
_DECAY = (0.9, 0.999)  # decays of the two moments of Adam


@dataclass
class Steps:
    """The steps of one epoch.

    Attributes
    ----------
    optimizer : "adam" or "sgd"
    rate, l2 : float
    steps : int, of the whole training
    w, first, second : (d,) the weights; the moments of Adam
    taken : int, steps so far
    """

    optimizer: Optimizer
    rate: float
    l2: float
    steps: int
    w: FloatArray
    first: FloatArray
    second: FloatArray
    taken: int

    def __post_init__(self) -> None:
        """Mark all penalties so far as applied."""
        self._paid = np.zeros_like(self.w)
        self._all = np.arange(len(self.w))
        self._so_far = 0.0

    def take(self, sums: Sums) -> None:
        """Take one step along the mean gradient of some pairs."""
        rate = self.rate * max(0.0, 1 - self.taken / self.steps)
        self.taken += 1
        gradient = sums.gradient / sums.done
        support = self._all if sums.support is None else sums.support
        if self.optimizer == "adam":
            self._adam(rate, gradient, sums)
        else:
            before = self._so_far
            kept = 1 - rate * self.l2
            self._so_far += math.log(kept) if kept > 0 else -np.inf
            own = rate, self.l2, before, self._so_far
            kernels.steps.sgd(self.w, self._paid, support, gradient, own)

    def catch_up(self) -> None:
        """Apply the outstanding penalties of all weights, at the end of the epoch."""
        if self.optimizer == "sgd":
            kernels.steps.sgd_catch_up(self.w, self._paid, self._so_far)

    def _adam(self, rate: float, gradient: FloatArray, sums: Sums) -> None:
        whole: Any = gradient
        if sums.support is not None:
            whole = np.zeros_like(self.w)
            whole[sums.support] = gradient
        first, second = _DECAY
        scales = 1 - first**self.taken, 1 - second**self.taken
        kernels.steps.adam(
            self.w, self.first, self.second, whole, (rate, first, second, *scales, self.l2)
        )
