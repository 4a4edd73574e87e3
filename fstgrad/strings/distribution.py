"""StringDistribution: the log-linear distribution over Delta^l, with or without a loss."""

from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import numpy.typing as npt

from fstgrad import plot
from fstgrad.core.alphabet import SequenceLike
from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    Seed,
    direction_array,
    generator,
    instance,
    log_weights,
    one_of,
    positive_integer,
)
from fstgrad.core.distribution import (
    ArrayDistribution,
    Distribution,
    log_probability,
    may_have_offsets,
)
from fstgrad.core.errors import InfeasibleError, InvalidInputError, NotSupportedError
from fstgrad.losses.automata.automaton import REVERSED, LossAutomaton
from fstgrad.strings import search
from fstgrad.strings.algebra import MaxPlus
from fstgrad.strings.passes import Passes
from fstgrad.strings.paths import PathWeights, difference_weights, loss_weights, product_weights
from fstgrad.strings.solve import no_loss, recentered_scores, solve
from fstgrad.strings.tangents import tangent

SMALL = 5_000  # states x scores of a position: up to here numpy is fast enough, without a compiler
ROUNDING = 1e-13  # certified bounds are widened by this per position, relative to their size


class StringDistribution(ArrayDistribution):
    """p(y) = exp(w.Psi(y) + L(y)) / Z over the strings y of length l over n symbols.

    w.Psi(y) = sum_s scores[s, y_{s-q+1}, ..., y_s], Markov of order q = 1, 2, 3, ...; L is the loss
    against one target in nats (0 without an automaton).  A string with L = +inf, or with a score of
    -inf, has probability 0.  The results of the passes are cached.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n) or (l, n+1, n+1, n), ... float64
        Log-weights in nats.  Context axes run from the oldest symbol to the youngest; index n means
        "before the start".  -inf forbids.  Entries of contexts that cannot occur are ignored.
        A float64 array is not copied: do not change it while the distribution is in use.
    b : LossAutomaton, optional
        The loss, compiled for the length l; None means L = 0.

    Raises
    ------
    InvalidInputError
        Shapes do not match, or a score is NaN, +inf or above 1e300.
    InfeasibleError
        Every string has probability zero; raised by the first computation.

    Notes
    -----
    Source: Cortes et al. 2018, Figures 2a and 4a.  Cost of log Z and the marginals:
    O(sum_t S_t n^q) for the S_t states of B in level t; C = A o B is never built.

    Examples
    --------
    >>> import numpy as np
    >>> d = StringDistribution(np.zeros((3, 2)))  # 8 equal strings
    >>> print(round(d.log_partition() / np.log(2), 12))
    3.0
    """

    def __init__(self, scores: npt.ArrayLike, b: LossAutomaton | None = None) -> None:
        self.scores = self._checked_scores(scores, b)
        self.scores.flags.writeable = False
        self.event_ndim = self.scores.ndim
        self.b = b
        self.automaton = b if b is not None else no_loss(self.scores.shape[-1], self.length)

    _repr_svg_ = plot.notebook(
        lambda self: plot.marginals(self.marginals(), self.automaton.alphabet),
        lambda self: max(self.length, self.scores.shape[-1]) <= 60,
    )

    @property
    def length(self) -> int:
        """Length l of the strings."""
        return len(self.scores)

    @property
    def order(self) -> int:
        """Markov order q of the scores."""
        return self.scores.ndim - 1

    def log_partition(self) -> float:
        """Return log Z in nats.

        Raises
        ------
        InfeasibleError
            No string has a finite score and a finite loss.
        """
        return self._solved[0]

    def log_partition_bounds(self) -> tuple[float, float]:
        """Return lower <= log Z <= upper in nats for the loss without its cap or band.

        For an automaton of min(L, cap), the lower bound is `log_partition()`; the upper bound uses,
        for each string above the cap, the cost of one of its alignments.  For an automaton of a
        band, `log_partition()` is the upper bound, and the lower one is -inf: how much less an
        alignment outside the band costs is not known.  The gradient of a bound is
        `bound(side).marginals()`.  Without a cap or a band both bounds are log Z; others are
        widened by the possible rounding error.

        Raises
        ------
        NotSupportedError
            The loss has a cap and is rational, or infinite for some strings; or it was pruned.
        """
        lower, upper = self.log_partition(), self.bound("upper").log_partition()
        if self.b is None or (self.b.cap is None and self.b.band is None):
            return lower, upper
        if self.b.band is not None:
            lower = -np.inf
        size = max(1.0, abs(self.log_partition()), abs(upper))
        rounding = ROUNDING * (self.length + 1) * size
        return lower - rounding, upper + rounding

    @property
    def recentered(self) -> "StringDistribution":
        """The same distribution with a constant subtracted per position, if that saves digits.

        Examples
        --------
        >>> d = StringDistribution([[-1e30, -1e30], [0.0, 1.0]])  # the first position is masked
        >>> d.recentered.scores.tolist(), d.recentered.log_prob([0, 1]) == d.log_prob([0, 1])
        ([[0.0, 0.0], [0.0, 1.0]], True)
        """
        return self._recentered if may_have_offsets(self.scores) else self

    def log_prob(self, structure: SequenceLike) -> float:
        """Return log p(y) in nats of a string of length l; -inf if it is forbidden."""
        if self.recentered is not self:
            return self.recentered.log_prob(structure)
        return float(super().log_prob(structure))

    def cross_entropy(self, other: Distribution[FloatArray]) -> float:
        """Return -E[log q(y)] in nats for q = `other`; +inf if q forbids a string allowed here."""
        if isinstance(other, StringDistribution) and other.recentered is not other:
            return self.cross_entropy(other.recentered)
        return float(super().cross_entropy(other))

    def bound(self, side: Literal["lower", "upper"]) -> "StringDistribution":
        """Return the distribution whose log Z bounds log Z of the loss without its cap or band.

        Raises
        ------
        NotSupportedError
            The loss was pruned, or `side` is "lower" and it has a band; or, for "upper", it has a
            cap and is rational, or infinite for some strings.
        """
        if self.b is not None and self.b.prune is not None:
            raise NotSupportedError(
                f"the loss was pruned (prune={self.b.prune:g}), which bounds nothing; compile it "
                "with cap= instead"
            )
        is_lower = one_of("side", side, ("lower", "upper")) == "lower"
        if is_lower and self.b is not None and self.b.band is not None:
            raise NotSupportedError(
                f"the loss has a band (band={self.b.band}), which gives an upper bound only; use "
                "side='upper', or compile it with cap= instead for both"
            )
        if self.b is None or self.b.cap is None or (is_lower and self.b.cap is not REVERSED):
            return self
        return self._upper

    def marginals(self) -> FloatArray:
        """Return the gradient terms Q = d log Z / d scores, a float64 array like the scores.

        Q[s, z] is the probability that the symbols up to position s end in z; each position sums to
        one.  The array is cached and read-only.
        """
        return self._solved[1]

    def parts(self, structure: SequenceLike) -> FloatArray:
        """Return t(y), shaped like the scores: 1 at the entries that the string uses, else 0."""
        table = np.zeros_like(self.scores)
        table[self.cells(structure)] = 1.0
        return table

    def cells(self, structure: SequenceLike) -> tuple[IntArray, ...]:
        """Return the indices of the scores that one string uses, as q + 1 int64 arrays (l,)."""
        return np.unravel_index(self._flat_index(structure), self.scores.shape)

    def gold(self, structure: SequenceLike, name: str = "gold") -> tuple[IntArray, float]:
        """Return the indices (l,) of the gold string in the flat scores, and w.Psi(gold) in nats.

        name : the name of the string in errors.

        Raises
        ------
        InfeasibleError
            The score is -inf.
        """
        index = self._flat_index(structure, name)
        scores = self.scores.take(index)
        total = float(np.add.reduce(scores))
        if total == -np.inf:
            position = int(np.flatnonzero(np.isneginf(scores))[0])
            raise InfeasibleError(
                f"{name} has a score of -inf at position {position}: its probability is zero; "
                "do not forbid symbols of the gold string"
            )
        return index, total

    def log_base(self, structure: SequenceLike) -> float:
        """Return L(y) in nats; -inf if the loss is +inf, because such a string has weight 0."""
        loss = self.automaton.loss(self._checked("structure", structure))
        return loss if loss < np.inf else -np.inf

    def expected_log_base(self, other: Distribution[FloatArray]) -> float:
        """Return E[L'(y)] in nats for the loss L' of `other`; 0 if it has none.

        -inf if L' is +inf for a string of positive probability, because `other` forbids it.
        """
        if not isinstance(other, StringDistribution) or other.b is None:
            return 0.0
        if other.b is self.b:
            return self.expected_loss(other.b)
        if self._allows_beyond(other.b):
            return -np.inf
        return self._log_partition_and_mean(product_weights(self.automaton, other.b))[1]

    def expected_loss(self, b: LossAutomaton) -> float:
        """Return E[L_b(y)] in nats; +inf if a string of positive probability has L_b = +inf.

        (`fg.risk` leaves such strings out instead.)

        Raises
        ------
        InvalidInputError
            `b` was compiled for another length or another number of symbols.
        """
        self._check_automaton(self.scores, b)
        if self._allows_beyond(b):
            return np.inf
        if self.b is None or b is self.b:
            scale: Literal[0, 1] = 0 if self.b is None else 1
            if b.num_states * self.scores[0].size <= SMALL:
                return self._log_partition_and_mean(loss_weights(b, scale=scale, slope=1))[1]
            return tangent(self.scores, b, scale=scale, slope=1).slope
        return self._log_partition_and_mean(product_weights(self.b, b))[1]

    def covariance_product(self, direction: FloatArray) -> FloatArray:
        """Return Cov[t] applied to `direction`, both shaped like the scores.

        It is the derivative of the marginals along this change of the scores.  The direction must
        be finite.  Cost: about twice that of the marginals.
        """
        direction = direction_array("direction", direction, self.scores.shape)
        return tangent(self.scores, self.automaton, scale=1, direction=direction).change

    def sample(self, k: int, rng: Seed = None) -> IntArray:
        """Return k independent strings, (k, l) int64 ids; one backward pass and O(l k n)."""
        k = positive_integer("k", k)
        model = self.recentered
        return search.sample(model.scores, model._paths, k, generator(rng))

    def mode(self) -> IntArray:
        """Return the most probable string, (l,) int64 ids; among equals the smaller ids."""
        return self.kbest(1)[0][0]

    def kbest(self, k: int) -> list[tuple[IntArray, float]]:
        """Return the k most probable strings as (ids, log_prob), best first.

        The list is shorter if fewer strings have positive probability.  Cost: one max-plus pass and
        O(k l n log(k l n)).
        """
        k = positive_integer("k", k)
        model = self.recentered
        best = search.kbest(model.scores, self._paths, k)
        log_z = model.log_partition()
        return [(ids, log_probability(score, log_z)) for ids, score in best]

    @cached_property
    def _recentered(self) -> "StringDistribution":
        scores = recentered_scores(self.scores)
        return self if scores is self.scores else StringDistribution(scores, self.b)

    @cached_property
    def _paths(self) -> PathWeights:
        return loss_weights(self.automaton, scale=1.0)

    @cached_property
    def _upper(self) -> "StringDistribution":
        return StringDistribution(self.scores, self.b.cap.upper if self.b and self.b.cap else None)

    @cached_property
    def _solved(self) -> tuple[float, FloatArray]:
        log_z, marginals = solve(self.scores, self.automaton)
        marginals.flags.writeable = False
        return log_z, marginals

    def _allows_beyond(self, b: LossAutomaton) -> bool:
        """Return whether some string of positive probability has no path in `b`."""
        if b.is_complete or b is self.b:
            return False
        self.log_partition()  # raises if there are no strings
        paths = difference_weights(self.automaton, b)
        if paths is None:
            return False
        try:
            Passes(self.scores, paths, algebra=MaxPlus()).forward()
        except InfeasibleError:
            return False
        return True

    def _log_partition_and_mean(self, paths: PathWeights) -> tuple[float, float]:
        """Return log Z of the paths and the mean of their tangent."""
        return Passes(self.scores, paths).forward()

    def _flat_index(self, structure: SequenceLike, name: str = "structure") -> IntArray:
        return flat_index(self._checked(name, structure), self.order, self.scores.shape[-1])

    def _checked(self, name: str, structure: SequenceLike) -> IntArray:
        ids = self.automaton.alphabet.encode(structure, name=name)
        if len(ids) != self.length:
            raise InvalidInputError(
                f"{name} has length {len(ids)}; the strings have length {self.length}"
            )
        return ids

    @staticmethod
    def _checked_scores(scores: npt.ArrayLike, b: LossAutomaton | None) -> FloatArray:
        array = np.ascontiguousarray(log_weights("scores", scores)).view()
        if array.ndim < 2 or 0 in array.shape:
            raise InvalidInputError(
                f"scores has shape {array.shape}; give (l, n), (l, n+1, n), (l, n+1, n+1, n), ... "
                "with l, n >= 1"
            )
        length, n = array.shape[0], array.shape[-1]
        if array.shape != (length, *(n + 1,) * (array.ndim - 2), n):
            raise InvalidInputError(
                f"scores has shape {array.shape}; with {n} symbols the context axes have {n + 1}"
            )
        if b is not None:
            StringDistribution._check_automaton(array, b)
        return array

    @staticmethod
    def _check_automaton(scores: FloatArray, b: LossAutomaton) -> None:
        length, n = len(scores), scores.shape[-1]
        instance("b", b, LossAutomaton, "what loss.compile returns")
        if (b.length, len(b.alphabet)) != (length, n):
            raise InvalidInputError(
                f"scores are for {length} positions and {n} symbols; the automaton was compiled "
                f"for {b.length} positions and {len(b.alphabet)} symbols"
            )


def flat_index(ids: IntArray, order: int, n: int) -> IntArray:
    """Return the indices (l,) in the flat scores that the string `ids` uses, one per position."""
    index = _first_index(len(ids), order, n) + ids
    for age in range(1, min(order, len(ids))):
        index[age:] += n * (n + 1) ** (age - 1) * (ids[:-age] - n)
    return index


@lru_cache(maxsize=32)
def _first_index(length: int, order: int, n: int) -> IntArray:
    """Return the index (l,) of symbol 0 at each position, in the context of n at all places."""
    contexts = (n + 1) ** (order - 1)
    return np.asarray((np.arange(length) * contexts + contexts - 1) * n)
