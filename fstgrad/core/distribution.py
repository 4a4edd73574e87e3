"""The contract that every family of distributions meets.

A distribution over structures y is log-linear in a table of scores theta (log-weights in nats):

    p(y) = exp( <theta, t(y)> + b(y) ) / Z,

where t(y) is the table of parts that y uses (0, 1 or a count for each entry of theta) and b(y) is
the log of a fixed base measure (the loss in loss-augmented strings; 0 in other families).  Then

    d log Z / d theta  = E[t] = marginals,        d^2 log Z / d theta^2 = Cov[t].

A family implements the abstract methods; the other methods are built from them.
"""

from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, Seed, direction_array, float_array, instance
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.core.short_repr import summary

Table = TypeVar("Table")
_ROUNDING = 1e-10
FAR = 1e5  # nats; larger scores come from masks, and their differences have errors above 1e-11
Scalar = Any  # float, or a float64 array of the batch shape in batched families


def log_probability(score: Any, log_z: Any) -> Any:
    """Return log p = score - log Z in nats, at most 0: the difference of large numbers is rounded.

    A float, or an array if one of them is an array.
    """
    value = np.minimum(score - log_z, 0.0)
    return value if np.ndim(value) else float(value)


class Distribution(ABC, Generic[Table]):
    """A log-linear distribution over structures y with the table `scores`, log-weights in nats."""

    scores: Table

    @abstractmethod
    def log_partition(self) -> Scalar:
        """Return log Z in nats."""

    @abstractmethod
    def marginals(self) -> Table:
        """Return E[t], the gradient of log Z with respect to the scores; a table like `scores`."""

    @abstractmethod
    def parts(self, structure: Any) -> Table:
        """Return t(y), the table of parts of one structure; a table like `scores`."""

    @abstractmethod
    def covariance_product(self, direction: Table) -> Table:
        """Return Cov[t] times `direction`, the directional derivative of the marginals.

        `direction` and the result are tables like `scores`.
        """

    @abstractmethod
    def sample(self, k: int, rng: Seed = None) -> Any:
        """Return k independent exact samples; `rng` is a Generator, a seed or None (entropy)."""

    @abstractmethod
    def mode(self) -> Any:
        """Return a structure of the largest probability."""

    @abstractmethod
    def inner(self, weights: Table, values: Table) -> Scalar:
        """Return <weights, values> with 0 * inf = 0, for each item of a batch."""

    def log_base(self, structure: Any) -> Scalar:
        """Return b(y), the log of the base measure of one structure."""
        return 0.0

    def expected_log_base(self, other: "Distribution[Table]") -> Scalar:
        """Return E[b'(y)], the expected log base measure of `other` under this distribution."""
        return 0.0

    # The methods below are built from those above.

    def expectation(self, r: Table) -> Scalar:
        """Return E[<r, t(y)>], the expectation of an additive function; r is like `scores`.

        Raises
        ------
        InvalidInputError
            r has another shape or NaN, or its infinities cancel.
        """
        return self._total("r", self.marginals(), self._like_scores("r", r))

    def covariance(self, r: Table, s: Table) -> Scalar:
        """Return Cov[<r, t(y)>, <s, t(y)>] for two tables like `scores`.

        Raises
        ------
        InvalidInputError
            As in `expectation`; or s is not finite.
        """
        r, s = self._like_scores("r", r), self._like_scores("s", s, finite=True)
        return self._total("r", self.covariance_product(s), r)

    def _total(self, name: str, weights: Table, values: Table) -> Scalar:
        """Return <weights, values>; raise InvalidInputError if infinities of `values` cancel."""
        value: Scalar = np.nan
        with suppress(InvalidInputError):  # they cancel within an array
            value = self.inner(weights, values)
        if np.isnan(value).any():
            raise InvalidInputError(f"{name} has infinities that cancel; give finite numbers")
        return value

    def log_prob(self, structure: Any) -> Scalar:
        """Return log p(y) in nats; -inf for a forbidden structure."""
        score = self.inner(self.parts(structure), self.scores)
        return log_probability(score + self.log_base(structure), self.log_partition())

    def nll(self, gold: Any) -> tuple[Scalar, Table]:
        """Return -log p(gold) in nats and its gradient, E[t] - t(gold), a table like `scores`."""
        gold = self._checked("gold", gold)
        return -self.log_prob(gold), self._difference(self.marginals(), self.parts(gold))

    def risk(self, costs: Table) -> tuple[Scalar, Table]:
        """Return E[<costs, t(y)>], an expected cost, and its gradient in the scores, Cov[t] costs.

        costs : a table of finite numbers, like `scores`.

        Raises
        ------
        InvalidInputError
            costs has another shape, or a number that is not finite.
        """
        table = self._like_scores("costs", costs)
        return self.expectation(table), self.covariance_product(table)

    def softmax_margin(self, gold: Any, costs: Table | None = None) -> tuple[Scalar, Table]:
        """Return log sum_y exp(<costs, t(y)> + score(y) - score(gold)) and its gradient.

        The value is in nats; the gradient in the scores is E[t] - t(gold) under the scores plus
        costs.  Without costs, it is `nll`.  A family may leave this method out.

        costs : a table of finite numbers, like `scores`.

        Raises
        ------
        NotSupportedError
            The family has no softmax margin with a table of costs.

        Examples
        --------
        >>> import fstgrad as fg
        >>> d = fg.StringDistribution(np.zeros((2, 2)))
        >>> bool(np.isclose(d.softmax_margin([0, 1])[0], np.log(4)))
        True
        """
        if costs is None:
            return self.nll(gold)
        raise NotSupportedError(
            f"{type(self).__name__} has no softmax margin with a table of costs; it has nll(gold) "
            "and risk(costs), and the scores of strings and lattices take a loss: "
            "softmax_margin(scores, gold, b)"
        )

    def entropy(self) -> Scalar:
        """Return the entropy -E[log p(y)] in nats."""
        return not_below_zero(self.cross_entropy(self), self.log_partition())

    def cross_entropy(self, other: "Distribution[Table]") -> Scalar:
        """Return -E[log q(y)] in nats for q = `other`; +inf if q forbids a structure of this.

        Raises
        ------
        InvalidInputError
            `other` is not a distribution with scores of the same shape.
        """
        instance("other", other, Distribution, "a distribution of the same family")
        self._like_scores("the scores of other", other.scores)
        expected_score = self.inner(self.marginals(), other.scores)
        return other.log_partition() - expected_score - self.expected_log_base(other)

    def kl(self, other: "Distribution[Table]") -> Scalar:
        """Return the Kullback-Leibler divergence E[log p(y) - log q(y)] in nats for q = `other`."""
        difference = self.cross_entropy(other) - self.cross_entropy(self)
        return not_below_zero(difference, self.log_partition())

    def _checked(self, name: str, structure: Any) -> Any:
        """Return a structure; a family may check it here, so that errors call it `name`."""
        return structure

    @abstractmethod
    def _difference(self, left: Table, right: Table) -> Table:
        """Return left - right, entry by entry."""

    @abstractmethod
    def _like_scores(self, name: str, table: Table, *, finite: bool = False) -> Table:
        """Return a table of numbers; raise InvalidInputError unless it is like the scores."""


_SHOWN = ("b", "alphabet", "single_root", "labeled", "graph")  # shown in a repr, if present


def may_have_offsets(scores: FloatArray) -> bool:
    """Return whether a score, -inf included, exceeds `FAR` in absolute value.

    This is a fast test for offsets, which cost digits.
    """
    least = np.minimum.reduce(scores, axis=None, initial=0.0)
    return not -FAR <= least <= np.maximum.reduce(scores, axis=None, initial=0.0) <= FAR


def offsets(largest: FloatArray) -> FloatArray:
    """Return the entries of `largest` that are offsets, which cost digits, and 0 for the others.

    An offset is finite and exceeds `FAR` in absolute value.  `largest` has the largest score of
    each position or node; it and the result have the same shape, in nats.
    """
    return np.where((np.abs(largest) > FAR) & np.isfinite(largest), largest, 0.0)


class ArrayDistribution(Distribution[FloatArray]):
    """A distribution whose score table is one float64 array.

    The last `event_ndim` axes belong to one structure; leading axes are a batch.  In some families,
    `expectation` and `covariance` accept tables with further trailing axes (vector-valued r).
    """

    event_ndim: int

    def __repr__(self) -> str:
        parts = {name: vars(self)[name] for name in _SHOWN if vars(self).get(name) is not None}
        return summary(type(self).__name__, {"scores": self.scores} | parts)

    def inner(self, weights: FloatArray, values: FloatArray) -> Scalar:
        """Return the sum of weights * values over the event axes, with 0 * inf = 0."""
        return masked_inner(float_array("weights", weights), values, self.event_ndim)

    def _difference(self, left: FloatArray, right: FloatArray) -> FloatArray:
        return np.subtract(left, right)

    def _like_scores(self, name: str, table: FloatArray, *, finite: bool = False) -> FloatArray:
        checked = direction_array if finite else float_array
        array = checked(name, table, np.shape(self.scores))
        if np.isnan(array).any():
            raise InvalidInputError(f"{name} has NaN; give numbers")
        return array


def not_below_zero(value: Scalar, magnitude: Scalar) -> Scalar:
    """Return `value` with 0 for entries that are negative only by rounding.

    The tolerance is 1e-10 max(1, |magnitude|).
    """
    rounding = -_ROUNDING * np.maximum(1.0, np.abs(magnitude))
    clamped = np.where((value < 0) & (value > rounding), 0.0, value)
    return float(clamped) if clamped.ndim == 0 else clamped


def masked_inner(weights: npt.ArrayLike, values: npt.ArrayLike, event_ndim: int) -> Scalar:
    """Return the sum of weights * values over the last `event_ndim` axes, with 0 * inf = 0.

    These axes are equal or left out, and the axes before them broadcast.  The result is a float, or
    float64 of the axes before them.

    Raises
    ------
    InvalidInputError
        The shapes do not fit, an array has NaN, or infinities cancel.
    """
    left, right = float_array("weights", weights), float_array("values", values)
    if left.shape != right.shape or left.ndim < event_ndim:
        left, right = _broadcast(left, right, event_ndim)
    product = np.multiply(left, right, out=np.zeros(left.shape), where=(left != 0) & (right != 0))
    with np.errstate(invalid="ignore"):
        total = product.sum(axis=tuple(range(-event_ndim, 0)))
    if np.isnan(total).any():
        for name, table in (("weights", left), ("values", right)):
            if np.isnan(table).any():
                raise InvalidInputError(f"{name} has NaN; give numbers")
        raise InvalidInputError(
            "weights and values have infinities that cancel; give finite numbers"
        )
    return float(total) if total.ndim == 0 else total


def _broadcast(left: FloatArray, right: FloatArray, event_ndim: int) -> tuple[FloatArray, ...]:
    """Return two arrays broadcast to one shape with at least `event_ndim` axes."""
    shapes = f"{left.shape} and {right.shape}"
    try:
        both = np.broadcast_arrays(left, right)
    except ValueError as error:
        raise InvalidInputError(f"weights and values have shapes {shapes}") from error
    common = min(event_ndim, left.ndim, right.ndim)
    is_like = left.shape[left.ndim - common :] == right.shape[right.ndim - common :]
    if not is_like or both[0].ndim < event_ndim:
        raise InvalidInputError(
            f"weights and values have shapes {shapes}; give {event_ndim} axes, as scores have"
        )
    return both
