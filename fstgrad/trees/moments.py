"""Second-order quantities of tree distributions, and gradients of functions of expectations.

Everything rests on the Hessian-vector product Cov v or, for several directions, on covariances in
closed form; only `covariance_matrix` forms all (n+1)^4 of them.  Section and figure numbers refer
to Zmigrod, Vieira and Cotterell (2021).
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray
from fstgrad.core.distribution import ArrayDistribution, Scalar
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.core.uninitialized import empty

if TYPE_CHECKING:
    from scipy.sparse import csr_array


# Renyi entropies of orders this close to 1 are means over orders, not quotients.
NEAR_ONE = 1e-2


class Covariances(Protocol):
    """Covariances of the parts of one structure."""

    @property
    def row(self) -> Callable[..., FloatArray]:
        """Covariances of one part, given by its indices, with all parts: shaped like the scores."""

    def matrix(self) -> FloatArray:
        """Return the covariances of all pairs of parts."""

    def between(self, r: FloatArray, s: FloatArray) -> FloatArray:
        """Return Cov (R, S) of the totals of r and s, tables like the scores with one more axis."""


class MomentDistribution(ArrayDistribution):
    """A distribution over arrays whose covariances are known as products with a table."""

    @abstractmethod
    def _covariance_product(self, v: FloatArray) -> FloatArray:
        """Return Cov v for a finite C-contiguous table v like the scores; v may be overwritten."""

    @abstractmethod
    def _table_like_scores(self, name: str, values: npt.ArrayLike) -> FloatArray:
        """Return checked finite values as a new table shaped like the scores."""

    @abstractmethod
    def _entropy_and_regrets(self) -> tuple[Scalar, FloatArray]:
        """Return the entropy and a new table like the scores that equals -scores for covariances.

        The table is the negative scores up to a constant over structures, with 0 for -inf.
        """

    @abstractmethod
    def _divergence_gap(self, other: "MomentDistribution") -> tuple[FloatArray, FloatArray]:
        """Return r and c (b,) with KL(p || other) = c + <marginals, r>.

        For covariances, r is the scores minus those of `other`; it is 0 where the marginals are 0.
        """

    @abstractmethod
    def _arc_covariances(self, place: tuple[int, ...]) -> "Covariances | None":
        """Return the covariances of one item in closed form, None if it has none."""

    @abstractmethod
    def _log_partition_ratio(self, logs: FloatArray) -> Scalar:
        """Return log Z of the scores + logs, minus log Z; -inf if no structure is left."""

    def _signed_product(self, q: FloatArray) -> Scalar:
        """Return E[product of q] for q of any sign."""
        raise NotSupportedError(
            "q has entries below zero, which only SpanningTrees accepts; give q >= 0"
        )

    @abstractmethod
    def _centered(self) -> "MomentDistribution":
        """Return the same distribution with scores whose log Z is small."""

    @abstractmethod
    def with_scores(self, scores: npt.ArrayLike) -> "MomentDistribution":
        """Return the same family with another table."""

    def covariance_product(self, direction: npt.ArrayLike) -> FloatArray:
        """Return Cov v, the derivative of the marginals along a finite table v like `scores`.

        The Hessian of log Z times a vector in O(n^3): for spanning trees one inverse and two
        matrix products.
        """
        return self._covariance_product(self._table_like_scores("direction", direction))

    def covariance(self, r: npt.ArrayLike, s: npt.ArrayLike) -> Scalar:
        """Return Cov[<r, t>, <s, t>] for tables r and s like `scores`: O(n^3)."""
        return self.inner(self.covariance_product(s), self._table_like_scores("r", r))

    def covariance_matrix(self) -> FloatArray:
        """Return the covariances of all pairs of parts: the event axes of `scores` twice.

        Closed form for spanning trees, O(n^4).  For projective trees, and if the gradient of log Z
        is too large for the closed form, one Hessian-vector product per part, O(n^5).
        """
        event = self.scores.shape[-self.event_ndim :]
        batch = self.scores.shape[: -self.event_ndim]
        size = int(np.prod(event))
        matrix = empty((*batch, size, size))
        for place in np.ndindex(batch):
            closed = self._arc_covariances(place)
            if closed is None:
                return self._covariance_columns(matrix).reshape(*batch, *event, *event)
            matrix[place] = closed.matrix().reshape(size, size)
        return matrix.reshape(*batch, *event, *event)

    def _covariance_columns(self, matrix: FloatArray) -> FloatArray:
        event = self.scores.shape[-self.event_ndim :]
        for column in range(matrix.shape[-1]):
            unit = np.zeros(matrix.shape[-1])
            unit[column] = 1.0
            v = np.array(np.broadcast_to(unit.reshape(event), self.scores.shape), order="C")
            matrix[..., column] = self._covariance_product(v).reshape(matrix.shape[:-1])
        return matrix

    def expectations(self, r: Any) -> FloatArray:
        """Return E[sum of r over the parts] for a vector-valued r: T1 (Figure 2), O(n^3 + n^2 R').

        r : scores.shape + (R,), or, without a batch, a sparse (n_parts, R) array, of which only the
        non-zeros are read.
        """
        return self._expectations(self._sparse("r", r) if _is_sparse(r) else self._features("r", r))

    def _expectations(self, table: "FloatArray | csr_array") -> FloatArray:
        """Return E of the totals of a checked table like the scores with one axis more."""
        mu = self.marginals()
        if not isinstance(table, np.ndarray):
            return np.asarray(table.T @ mu.reshape(-1))
        batch = mu.ndim - self.event_ndim
        size = mu.shape[:batch]
        weights = mu.reshape(*size, 1, mu[(0,) * batch].size)
        flat = table.reshape(*size, weights.shape[-1], table.shape[-1])
        totals: FloatArray = np.matmul(weights, flat)[..., 0, :]
        return totals

    def second_moments(
        self, r: Any, s: Any, *, method: Literal["vector", "hessian"] = "vector"
    ) -> FloatArray:
        """Return E[r s'] for the totals r (R) and s (S) of a structure: T2 (Figure 3), (R, S).

        r, s : scores.shape + (R,) and (S,), or sparse (n_parts, R) and (n_parts, S) arrays; no
        batch.  "vector" (T2^v) costs one matrix product per entry of r and of s and one for all of
        them, O(n^3 (R + S) + n^2 R S).  "hessian" (T2^h) computes a row of the covariances for each
        part with a non-zero r, O(n^4 + n^2 S') at most, S' the mean number of non-zeros of s in a
        part; it wins if R + S is large and s sparse.  Without a closed form (see
        `covariance_matrix`) both use Hessian-vector products, n times as much for T2^h.
        """
        checks.one_of("method", method, ("vector", "hessian"))
        if self.scores.ndim > self.event_ndim:
            raise InvalidInputError("second_moments takes one structure, not a batch; loop over it")
        closed = self._arc_covariances(())
        if method == "vector" and closed is not None:
            first, second = self._dense("r", r), self._dense("s", s)
            moments = closed.between(first, second)
            return moments + np.outer(self._expectations(first), self._expectations(second))
        left, right = self._sparse("r", r), self._sparse("s", s)
        shape = self.scores.shape
        if method == "vector":
            columns = left.tocsc()
            products = [
                right.T @ self._covariance_product(columns[:, [i]].toarray().reshape(shape)).ravel()
                for i in range(left.shape[1])
            ]
            moments = np.asarray(products).reshape(left.shape[1], right.shape[1])
        else:
            moments = np.zeros((left.shape[1], right.shape[1]))
            for part in np.flatnonzero(np.diff(left.indptr)):
                if closed is not None:
                    row = closed.row(*(int(i) for i in np.unravel_index(part, shape)))
                else:
                    unit = np.zeros(shape)
                    unit.flat[part] = 1.0
                    row = self._covariance_product(unit)
                moments += left[[part]].T @ (right.T @ row.ravel())[None, :]
        return moments + np.outer(self._expectations(left), self._expectations(right))

    def expected_product(self, q: npt.ArrayLike) -> Scalar:
        """Return E[product of q over the parts], q a finite table like `scores`: O(n^3).

        The zeroth-order expectation: Z with weights multiplied by q, divided by Z.  With q = exp(t
        r) it is the moment-generating function of the total r.  With entries below zero, which only
        `SpanningTrees` accepts, the error is about 1e-12 E[product of |q|].
        """
        table = self._table_like_scores("q", q)
        if (table >= 0).all():
            with np.errstate(divide="ignore"):
                logs = np.log(table)
            return exponential(self._log_partition_ratio(logs))
        return self._signed_product(table)

    def risk(self, costs: npt.ArrayLike) -> tuple[Scalar, FloatArray]:
        """Return E[<costs, t>] and its gradient in the scores, Cov costs.

        With cost 1 on every arc except the gold ones, (n - value) / n is the expected attachment
        score.
        """
        table = self._table_like_scores("costs", costs)
        value = self.inner(self.marginals(), table)
        return value, self._covariance_product(table)

    def generalized_expectation(
        self, features: Any, target: npt.ArrayLike
    ) -> tuple[Scalar, FloatArray]:
        """Return 1/2 |E f - target|^2 and its gradient in the scores: O(n^3 + n^2 F').

        features : scores.shape + (F,), or, without a batch, a sparse (n_parts, F) array.
        target : (F,) or the batch's shape + (F,).
        The gradient is one Hessian-vector product, Cov (F (E f - target)); Druck and Smith (2009)
        form all covariances instead.
        """
        if _is_sparse(features):
            checks.direction_array("features.data", features.data)
            features = self._sparse("features", features)
        else:
            features = self._features("features", features, checks.direction_array)
        expected = self._expectations(features)
        wanted = checks.direction_array("target", target)
        if wanted.shape not in (expected.shape, expected.shape[-1:]):
            raise InvalidInputError(
                f"target has shape {wanted.shape}; it must fit the expectations, {expected.shape}"
            )
        gap = expected - wanted
        if _is_sparse(features):
            direction = (features @ gap).reshape(self.scores.shape)
        else:
            spread = (..., *(None,) * self.event_ndim, slice(None), None)
            direction = np.matmul(features[..., None, :], gap[spread])[..., 0, 0]
        value = 0.5 * (gap * gap).sum(axis=-1)
        return float(value) if value.ndim == 0 else value, self._covariance_product(direction)

    def entropy_and_gradient(self) -> tuple[Scalar, FloatArray]:
        """Return the entropy in nats and its gradient in the scores, -Cov scores."""
        value, regrets = self._entropy_and_regrets()
        return value, self._covariance_product(regrets)

    def cross_entropy_and_gradients(
        self, other: "MomentDistribution"
    ) -> tuple[Scalar, FloatArray, FloatArray]:
        """Return -E[log q], q = `other`, and its gradients in the scores of p and of q.

        The gradients are -Cov_p(scores of q) and mu_q - mu_p.  If p forbids an arc, its gradient is
        0, whatever its score in q.
        """
        value = self._finite_divergence(other, self.cross_entropy(other))
        table = self._divergence_gap(other)[0] + self._entropy_and_regrets()[1]
        return value, self._covariance_product(table), other.marginals() - self.marginals()

    def kl_and_gradients(
        self, other: "MomentDistribution"
    ) -> tuple[Scalar, FloatArray, FloatArray]:
        """Return KL(p || q), q = `other`, and its gradients in the scores of p and of q.

        The gradients are Cov_p(scores of p - scores of q) and mu_q - mu_p.
        """
        value = self._finite_divergence(other, self.kl(other))
        gap = self._divergence_gap(other)[0]
        return value, self._covariance_product(gap), other.marginals() - self.marginals()

    def renyi(self, order: float) -> Scalar:
        """Return the Renyi entropy in nats, (log Z(a scores) - a log Z) / (1 - a), of order a > 0.

        The limit at order 1 is `entropy`.  Near 1 the quotient equals the mean of log Z -
        E_t[scores] over the orders t between 1 and a, computed by Gauss-Legendre quadrature.
        """
        a = checks.positive_number("order", order)
        if a == 1:
            return self.entropy()
        centered = self._centered()
        log_z = centered.log_partition()
        if abs(a - 1) < NEAR_ONE:
            return log_z - sum(
                weight * p.inner(p.marginals(), centered.scores)
                for p, weight in _between(centered, a)
            )
        return (centered.with_scores(times(centered.scores, a)).log_partition() - a * log_z) / (
            1 - a
        )

    def renyi_and_gradient(self, order: float) -> tuple[Scalar, FloatArray]:
        """Return the Renyi entropy and its gradient, a (mu(a scores) - mu) / (1 - a)."""
        a = checks.positive_number("order", order)
        if a == 1:
            return self.entropy_and_gradient()
        centered = self._centered()
        if abs(a - 1) < NEAR_ONE:
            regrets = np.where(centered.scores > -np.inf, -centered.scores, 0.0)
            products = (
                weight * p.covariance_product(regrets) for p, weight in _between(centered, a)
            )
            return self.renyi(a), a * np.sum(list(products), axis=0)
        tempered = centered.with_scores(times(centered.scores, a))
        return self.renyi(a), a / (1 - a) * (tempered.marginals() - self.marginals())

    def _finite_divergence(self, other: "MomentDistribution", value: Scalar) -> Scalar:
        if np.isposinf(value).any():
            lost = np.argwhere((self.marginals() > 0) & (other.scores == -np.inf))
            where = f" the part {lost[0].tolist()}" if len(lost) else " a structure"
            raise InvalidInputError(
                f"other forbids{where}, which this distribution allows, so that the divergence is "
                "+inf and has no gradient; allow it in other"
            )
        return value

    def _features(
        self,
        name: str,
        values: npt.ArrayLike,
        checked: Callable[[str, npt.ArrayLike], FloatArray] = checks.real_array,
    ) -> FloatArray:
        array = checked(name, values)
        if array.ndim != self.scores.ndim + 1 or array.shape[:-1] != self.scores.shape:
            raise InvalidInputError(
                f"{name} has shape {array.shape}; the shape must be that of the scores and one "
                f"more axis, ({', '.join(map(str, self.scores.shape))}, any)"
            )
        return array

    def _dense(self, name: str, values: Any) -> FloatArray:
        if not _is_sparse(values):
            return self._features(name, values)
        array: FloatArray = self._sparse(name, values).toarray().reshape(*self.scores.shape, -1)
        return array

    def _sparse(self, name: str, values: Any) -> "csr_array":
        from scipy.sparse import csr_array

        size = self.scores.size
        if not _is_sparse(values):
            array = self._features(name, values)
            return csr_array(array.reshape(size, -1))
        if self.scores.ndim > self.event_ndim or values.shape[0] != size:
            raise InvalidInputError(
                f"{name} is sparse with {values.shape[0]} rows; give {size}, one for each part, "
                "and scores without a batch"
            )
        checks.real_array(f"{name}.data", values.data)
        return csr_array(values)


def _between(p: MomentDistribution, order: float) -> list[tuple[MomentDistribution, float]]:
    """Return p at orders between 1 and `order`, with quadrature weights of the mean over them."""
    nodes, weights = np.polynomial.legendre.leggauss(4)
    orders = 1 + (order - 1) * (nodes + 1) / 2
    return [
        (p.with_scores(times(p.scores, t)), w / 2) for t, w in zip(orders, weights, strict=True)
    ]


def times(scores: FloatArray, factor: float) -> FloatArray:
    """Return the scores times `factor` > 0; finite ones, even -1.8e308, stay finite."""
    with np.errstate(over="ignore"):
        product = scores * factor
    limit = np.finfo(np.float64).max
    return np.where(np.isfinite(scores), np.clip(product, -limit, limit), scores)


def exponential(logs: Scalar) -> Scalar:
    """Return exp(logs), +inf beyond float64."""
    with np.errstate(over="ignore"):
        return np.exp(logs)


def _is_sparse(values: Any) -> bool:
    """Whether `values` is a matrix or array of scipy.sparse."""
    return hasattr(values, "tocsr")
