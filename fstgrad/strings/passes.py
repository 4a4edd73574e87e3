"""Forward and backward over A o B without building it: the definition of Q_w.

The kernels are tested against it.  It also runs itself, for samples, best strings, and tangents of
weights beyond the range of float64.

A level of A o B is a matrix: states s of B times contexts of the scores.  A context has q - 1
symbols: the oldest is x, the younger ones are r.  Then

    G[r, s, b] = sum_x alpha_t[r, s, x] exp(score_t[x, r, b])        one product per r
    alpha_{t+1}[(r, b) shifted, s'] = sum over arcs s -> s' that read b of G[r, s, b] e^L
    H_t[r, s, b] = e^L beta_{t+1}[(r, b) shifted, s']
    beta_t[r, s, x] = sum_b exp(score_t[x, r, b]) H_t[r, s, b]
    Q_t[x, r, b] = exp(score_t[x, r, b]) sum_s alpha_t[r, s, x] H_t[r, s, b] / Z

Cost of both passes: O(sum_t S_t n^q).
Arrays have axes (D, R, S, X): D from the algebra, R = (n + 1)^{q - 2} younger contexts, S states,
X = n + 1 oldest contexts; for q = 1 both R and X are 1.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InfeasibleError
from fstgrad.losses.automata.automaton import DEAD
from fstgrad.strings.algebra import Algebra, Log, Real
from fstgrad.strings.paths import PathWeights
from fstgrad.strings.solve import no_string_message, score_table, used_contexts


@dataclass
class Passes:
    """The passes for one table of scores and one weighted automaton, in one algebra.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64
        Log-weights in nats.
    paths : PathWeights
    direction : array like scores, optional
        A change of the scores; tangents are derivatives along it.
    algebra : Algebra, optional
        By default `Real` if the weights fit the range of floats, else `Log`.

    Attributes
    ----------
    alphas : l + 1 arrays (D, R, S, X)
        Set by `forward`.
    """

    scores: FloatArray
    paths: PathWeights
    direction: FloatArray | None = None
    algebra: Algebra | None = None
    alphas: list[FloatArray] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Build the table of scores and choose the algebra."""
        self.n = self.scores.shape[-1]
        self.order = self.scores.ndim - 1
        self._table = score_table(np.ascontiguousarray(self.scores))
        self._used = used_contexts(self.order, self.n)
        self.shifts = self._table.highest
        if self.algebra is None:
            open_loss, is_complete = self.paths.spread, self.paths.is_complete
            within = self._table.is_within_range(open_loss, is_complete=is_complete)
            self.algebra = Real() if within else Log()
        self.has_tangent = self.direction is not None or self.paths.tangent is not None

    def forward(self) -> tuple[float, float]:
        """Fill `alphas`, one array for each level; return log Z (nats) and its derivative.

        With `MaxPlus`, log Z is the largest log-weight of a string.  Without tangents the
        derivative is 0.

        Raises
        ------
        InfeasibleError
            No string has a finite score and loss.
        """
        algebra = self._algebra
        alpha = self._start()
        self.alphas = [alpha]
        offset = self.paths.initial + float(self.shifts.sum())
        for t in range(len(self.scores)):
            alpha = self._step(t, alpha)
            alpha, log_scale = algebra.scale(alpha)
            offset += log_scale
            self.alphas.append(alpha)
        ends, shift = self._ends()
        flat = algebra.times(alpha, ends[:, None, :, None]).reshape(len(alpha), -1, 1)
        total = algebra.reduce(flat, np.zeros(1, dtype=np.int64))[:, 0, 0]
        value = float(np.log(total[0])) if isinstance(algebra, Real) and total[0] > 0 else total[0]
        if total[0] == algebra.zero:
            raise InfeasibleError(no_string_message(self.paths.is_complete))
        log_z = float(value) + offset + shift
        if not self.has_tangent:
            return log_z, 0.0
        slope = total[1] / total[0] if isinstance(algebra, Real) else total[1]
        return log_z, float(slope) + self.paths.tangent_initial

    def backward(self) -> tuple[FloatArray, FloatArray | None]:
        """Return Q and its derivative, shaped like the scores; call `forward` first.

        The derivative is None without tangents.
        """
        algebra = self._algebra
        tables = [np.zeros((len(self._start()), *self.scores.shape))]
        table = tables[0]
        for t, ahead in self.backward_weights():
            weights = self._score_weights(t)
            pairs = algebra.matmul(np.swapaxes(self.alphas[t], -1, -2), ahead)
            shares = algebra.normalize(algebra.times(pairs, weights))
            table[:, t] = np.moveaxis(shares, 1, -2).reshape(table[:, t].shape)
        return table[0], table[1] if self.has_tangent else None

    def backward_weights(self) -> Iterator[tuple[int, FloatArray]]:
        """Yield (t, H_t) for t = l - 1 .. 0, with H_t of shape (D, R, S_t, n).

        H_t[r, s, b] is the weight of the arc from s that reads b, times the sum of the weights of
        all continuations; up to a constant factor per level.
        """
        algebra = self._algebra
        ends, _ = self._ends()
        beta = np.broadcast_to(ends[:, None, :, None], (len(ends), *self._shape(len(ends[0]))))
        for t in reversed(range(len(self.scores))):
            ahead = self._gather(t, beta)
            yield t, ahead
            if t:
                weights = np.swapaxes(self._score_weights(t), -1, -2)
                beta, _ = algebra.scale(algebra.matmul(ahead, weights))

    @property
    def _algebra(self) -> Algebra:
        if self.algebra is None:  # pragma: no cover - set in __post_init__
            raise AttributeError("algebra")
        return self.algebra

    def _shape(self, states: int) -> tuple[int, int, int]:
        """Return (R, S, X)."""
        if self.order == 1:
            return 1, states, 1
        return int((self.n + 1) ** (self.order - 2)), states, self.n + 1

    def _start(self) -> FloatArray:
        """Return alpha_0 (D, R, 1, X): weight one in the context before the start, else zero."""
        younger, states, oldest = self._shape(1)
        log_weight = np.full((younger, states, oldest), -np.inf)
        log_weight[-1, 0, -1] = 0.0
        zeros = np.zeros_like(log_weight) if self.has_tangent else None
        return self._algebra.weights(log_weight, zeros)

    def _ends(self) -> tuple[FloatArray, float]:
        """Return the final weights (D, S_l) divided by the largest, and the log of the largest."""
        shift = float(self.paths.final.max())
        tangent = self.paths.tangent_final
        if self.has_tangent and tangent is None:
            tangent = np.zeros_like(self.paths.final)
        return self._algebra.weights(self.paths.final - shift, tangent), shift

    def _score_weights(self, t: int) -> FloatArray:
        """Return exp(score_t - its maximum) as (D, R, X, n), in the algebra."""
        used = self._used[min(t, self.order - 1)][:, None]
        rows = self._by_context(np.where(used, self._table.table[t], -np.inf))
        if not self.has_tangent:
            return self._algebra.weights(rows, None)
        if self.direction is None:
            return self._algebra.weights(rows, np.zeros_like(rows))
        slope = self._by_context(np.where(used, self.direction[t].reshape(-1, self.n), 0.0))
        return self._algebra.weights(rows, slope)

    def _by_context(self, level: FloatArray) -> FloatArray:
        """Return the table (K, n) of one position as (R, X, n)."""
        younger, _, oldest = self._shape(1)
        return np.swapaxes(level.reshape(oldest, younger, self.n), 0, 1)

    def _loss(self, t: int) -> FloatArray:
        """Return the weights e^L of the arcs of level t, for each symbol, as (D, 1, S, n)."""
        tangent = self.paths.tangent[t] if self.paths.tangent is not None else None
        if self.has_tangent and tangent is None:
            tangent = np.zeros_like(self.paths.log[t])
        weights = self._algebra.weights(self.paths.log[t], tangent)
        return weights[:, None][..., self.paths.class_of]

    def _step(self, t: int, alpha: FloatArray) -> FloatArray:
        """Return alpha_{t+1}: multiply by the scores, then sum along the arcs of B."""
        algebra, paths = self._algebra, self.paths
        arrived = algebra.matmul(alpha, self._score_weights(t))
        arrived = algebra.times(arrived, self._loss(t))
        states = len(paths.final) if t + 1 == len(paths.levels) else len(paths.log[t + 1])
        after = np.full((len(alpha), arrived.shape[1], states, self.n), algebra.zero)
        if len(after) == 2:
            after[1] = 0.0
        for c, (sources, starts, nextstates) in enumerate(paths.levels[t].segments):
            symbols = np.flatnonzero(paths.class_of == c)
            if len(sources) and len(symbols):
                block = arrived[:, :, sources][..., symbols]
                after[:, :, nextstates[:, None], symbols] = algebra.reduce(block, starts)
        return self._shift_contexts(after)

    def _shift_contexts(self, after: FloatArray) -> FloatArray:
        """Return weights (D, R, S', n) by contexts r and symbol b as (D, R, S', X).

        The next context is (r, b); its oldest symbol moves to the last axis.
        """
        if self.order == 1:
            summed = self._algebra.reduce(np.swapaxes(after, -1, -2), np.zeros(1, dtype=np.int64))
            return np.swapaxes(summed, -1, -2)
        depth, younger, states, n = after.shape
        padded = np.full((depth, younger, states, n + 1), self._algebra.zero)
        if depth == 2:
            padded[1] = 0.0
        padded[..., :n] = after
        if self.order == 2:
            return padded
        oldest = n + 1  # the oldest of the younger contexts becomes the oldest
        blocks = padded.reshape(depth, oldest, younger // oldest, states, n + 1)
        return np.ascontiguousarray(np.transpose(blocks, (0, 2, 4, 3, 1))).reshape(
            depth, younger, states, oldest
        )

    def _unshift_contexts(self, beta: FloatArray) -> FloatArray:
        """Return weights (D, R, S', X) as (D, R, S', n): the inverse of `_shift_contexts`."""
        if self.order == 1:
            return np.broadcast_to(beta, (*beta.shape[:-1], self.n))
        depth, younger, states, oldest = beta.shape
        if self.order == 2:
            return beta[..., : self.n]
        blocks = beta.reshape(depth, younger // oldest, oldest, states, oldest)
        return np.transpose(blocks, (0, 4, 1, 3, 2)).reshape(depth, younger, states, oldest)[
            ..., : self.n
        ]

    def _gather(self, t: int, beta: FloatArray) -> FloatArray:
        """Return H_t (D, R, S_t, n) from beta_{t+1}."""
        paths = self.paths
        nextstate = paths.levels[t].nextstate[:, paths.class_of]
        ahead = self._unshift_contexts(beta)[:, :, nextstate, np.arange(self.n)]
        dead = nextstate == DEAD
        ahead[:, :, dead] = 0.0
        ahead[0, :, dead] = self._algebra.zero
        return self._algebra.times(ahead, self._loss(t))
