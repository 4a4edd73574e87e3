"""Chain: the distribution of the scores, without a loss, as a Markov chain from left to right."""

from functools import cached_property

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InfeasibleError
from fstgrad.core.uninitialized import empty
from fstgrad.strings import kernels


class Chain:
    """p(y) = exp(w.Psi(y)) / Z as a product of conditionals p(y_t | the q - 1 symbols before).

    The log-weight of all continuations of the context x at position t,

        v_t(x) = log sum_b exp(score_t[x, b] + v_{t+1}(x shifted by b)),    v_l = 0,

    gives log Z = v_0(start) and
    p(b | x) = exp(score_t[x, b] + v_{t+1}(x shifted by b) - v_t(x)).  Every step is normalised, so
    scores of any range do not overflow.  Cost O(l n^q).

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64
        Log-weights in nats, of Markov order q; -inf forbids.

    Attributes
    ----------
    log_partition : float
        log Z in nats.
    conditional : float64 array like the scores
        p(b | x) at each position; 0 after a context that allows no symbol.

    Raises
    ------
    InfeasibleError
        Every string has a score of -inf.
    """

    def __init__(self, scores: FloatArray) -> None:
        self.length, self.n, self.order = len(scores), scores.shape[-1], scores.ndim - 1
        self.shape = scores.shape
        self.contexts = (self.n + 1) ** (self.order - 1)
        start = (-1,) * (self.order - 1)
        conditional = empty(scores.shape)
        ahead = np.zeros((self.n + 1,) * (self.order - 1))
        for t in reversed(range(self.length)):
            total = scores[t] + ahead[..., : self.n] if self.order > 1 else scores[t] + ahead
            largest = total.max(axis=-1, keepdims=True)
            finite = np.where(np.isneginf(largest), 0.0, largest)
            weight = np.exp(total - finite)
            norm = weight.sum(axis=-1, keepdims=True)
            conditional[t] = np.divide(weight, norm, out=np.zeros_like(weight), where=norm > 0)
            with np.errstate(divide="ignore"):
                ahead = (finite + np.log(norm))[..., 0]
        self.log_partition = float(ahead[start])
        if self.log_partition == -np.inf:
            raise InfeasibleError(
                "scores forbid every string (Z = 0); allow at least one symbol in each position"
            )
        self.conditional = conditional

    @cached_property
    def marginals(self) -> FloatArray:
        """E[t(y)], a float64 array like the scores; O(l n^q)."""
        result = empty(self.shape)
        reached = np.zeros((self.n + 1,) * (self.order - 1))
        reached[(-1,) * (self.order - 1)] = 1.0
        for t in range(self.length):
            result[t] = reached[..., None] * self.conditional[t]
            if self.order > 1:
                reached = np.zeros_like(reached)
                reached[..., : self.n] = result[t].sum(axis=0)
        return result

    def draw(self, uniforms: FloatArray) -> IntArray:
        """Return the strings (k, l) int64 at the quantiles `uniforms` (k, l) in [0, 1).

        Each symbol is drawn by inversion: the first b whose cumulative p(b | x) exceeds the
        quantile.  O(k l n).
        """
        return kernels.one_state.draw(self._cumulative, np.ascontiguousarray(uniforms))

    def flat_index(self, strings: IntArray) -> IntArray:
        """Return the indices (k, l) into the flat scores that the `strings` (k, l) use.

        The score of a string is the sum of the scores at its l indices.
        """
        context = np.full(len(strings), self.contexts - 1, dtype=np.int64)
        result = empty(strings.shape, dtype=np.int64)
        for t, symbols in enumerate(strings.T):
            result[:, t] = (t * self.contexts + context) * self.n + symbols
            context = (context * (self.n + 1) + symbols) % self.contexts
        return result

    def counts(self, index: IntArray, weights: FloatArray) -> FloatArray:
        """Return sum_i weights[i] t(y_i), shaped like the scores.

        `index` (k, l) comes from `flat_index`; `weights` are (k,).
        """
        spread = np.repeat(weights, self.length)
        size = int(np.prod(self.shape))
        table: FloatArray = np.bincount(index.ravel(), spread, minlength=size).astype(np.float64)
        return table.reshape(self.shape)

    @cached_property
    def _cumulative(self) -> FloatArray:
        total = np.cumsum(self.conditional, axis=-1)
        last = total[..., -1:]
        total = np.divide(total, last, out=np.ones_like(total), where=last > 0)
        return total.reshape(self.length, self.contexts, self.n)
