"""The parameters of a generalized root model, and its potentials.

    log p(x) = sum_s sum_j intercept_sj t_j(x_s) + sum_S theta_S prod_{t in S} t_j(x_t)
               + sum_s B(x_s) - A,

with one theta_S for each set S of a term Psi_(j)^(l), l = |S|; j is the root of the term of S.  The
super-symmetric tensor contains Psi_S = theta_S / l! for each of the l! orders of S, so that
<Psi, x o ... o x> counts theta_S once.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InvalidInputError, warn
from fstgrad.core.short_repr import short_repr
from fstgrad.core.uninitialized import empty
from fstgrad.grm import kernels
from fstgrad.grm.base import Base
from fstgrad.grm.blocks import Term

ENTRIES = 4_000_000  # of eta that are stored at once
NO_SLOPES = np.zeros((0, 0))


@dataclass(frozen=True, eq=False)
class Interactions:
    """The nonzero coefficients of one term.

    sets : (m, size) int64, each ascending.  values : (m,) float64, theta_S.
    """

    term: Term
    sets: IntArray
    values: FloatArray

    __repr__ = short_repr


class FlatSets(NamedTuple):
    """All m sets of a model with their coefficients, as arrays.

    sizes (m,), roots (m,) : int64, the number of members and the root of the term, from 1.
    members : (m, max(k, 2)) int64, padded with -1.  values : (m,) float64, theta_S.
    """

    sizes: IntArray
    roots: IntArray
    members: IntArray
    values: FloatArray

    def __repr__(self) -> str:
        return short_repr(self)


@dataclass(frozen=True, eq=False)
class Parameters:
    """A model of p variables.

    families : the base of each node, all of one class.
    k : the largest root.
    intercepts : (p, k + e) float64, for t_1, ..., t_k and the e additional statistics.
    interactions : one entry for each term.
    slopes : (p, d) float64, of d covariates; with the covariates z (d,) of a row, the coefficient
        of t_1(x_s) is intercept_s1 + slopes_s . z.
    """

    families: tuple[Base, ...]
    k: int
    intercepts: FloatArray
    interactions: tuple[Interactions, ...]
    slopes: FloatArray = field(default_factory=lambda: NO_SLOPES)

    __repr__ = short_repr

    @property
    def features(self) -> int:
        """Return p."""
        return int(self.intercepts.shape[0])

    @property
    def family(self) -> Base:
        """The base of the first node, for properties that all nodes share."""
        return self.families[0]

    @property
    def covariates(self) -> int:
        """Return d."""
        return int(self.slopes.shape[1])

    @cached_property
    def groups(self) -> list[tuple[Base, IntArray]]:
        """The distinct families, each with the numbers of its nodes."""
        nodes: dict[Base, list[int]] = {}
        for node, family in enumerate(self.families):
            nodes.setdefault(family, []).append(node)
        return [(family, np.array(numbers, dtype=np.int64)) for family, numbers in nodes.items()]

    def log_base(self, x: FloatArray) -> FloatArray:
        """Return B of every entry of x (n, p), in nats, (n, p)."""
        out = empty(x.shape)
        for family, nodes in self.groups:
            out[:, nodes] = family.log_base(x[:, nodes])
        return out

    def of_one_row(self, offset: float, *, uses_offset: bool) -> "Parameters":
        """Return the parameters of a row with this offset, without covariates.

        Warns if the fit had offsets (`uses_offset`) and this one is 0, an exposure of 1.

        Raises
        ------
        InvalidInputError
            The model was fitted with covariates, so that the distributions of rows differ.
        """
        if self.covariates:
            raise InvalidInputError(
                f"the model was fitted with {self.covariates} covariate(s), so that its rows "
                "have different distributions; use at(covariates), the model for given values"
            )
        if uses_offset and offset == 0:
            warn(
                "the model was fitted with an offset, and this is for rows of offset 0, such as an "
                "exposure of 1; at(offset=...) is the model for another one, at(offset=0) for this",
                UserWarning,
            )
        return self.at_offset(offset) if offset else self

    def at_offset(self, offset: float, covariates: FloatArray | None = None) -> "Parameters":
        """Return the parameters for a row: intercepts with its offset and covariates (d,) added."""
        intercepts, slopes = self.intercepts.copy(), self.slopes
        intercepts[:, 0] += offset
        if covariates is not None and covariates.size:
            intercepts[:, 0] += slopes @ covariates
            slopes = slopes[:, :0]
        return replace(self, intercepts=intercepts, slopes=slopes)

    def shifts(self, offset: FloatArray, covariates: FloatArray) -> FloatArray:
        """Return what offsets (n,) and covariates (n, d) of rows add to eta_1 of nodes, (n, p)."""
        shift = np.repeat(offset[:, None], self.features, axis=1)
        return shift + covariates @ self.slopes.T if self.slopes.size else shift

    @cached_property
    def flat(self) -> FlatSets:
        """The sets of all interactions as arrays."""
        sizes = [np.full(len(i.values), i.term.size) for i in self.interactions]
        roots = [np.full(len(i.values), i.term.root) for i in self.interactions]
        width = max(self.k, 2)
        members = [
            np.pad(i.sets, ((0, 0), (0, width - i.term.size)), constant_values=-1)
            for i in self.interactions
        ]
        none = np.zeros(0, dtype=np.int64)
        return FlatSets(
            np.concatenate([none, *sizes]),
            np.concatenate([none, *roots]),
            np.concatenate([np.zeros((0, width), dtype=np.int64), *members]),
            np.concatenate([np.zeros(0), *(i.values for i in self.interactions)]),
        )

    def eta(self, x: FloatArray) -> FloatArray:
        """Return the natural parameters of all node conditionals, (n, p, k + e), for x (n, p).

        They do not include covariates.
        """
        statistics = self.family.statistics(x, self.k)
        eta = np.broadcast_to(self.intercepts, statistics.shape).copy()
        kernels.design.add_interactions(statistics, *self.flat, eta)
        return eta

    def log_potential(self, x: FloatArray) -> FloatArray:
        """Return log p(x) + A in nats, (n,), for x (n, p)."""
        statistics = self.family.statistics(x, self.k)
        energy = np.einsum("npk,pk->n", statistics, self.intercepts)
        kernels.design.add_energies(statistics, *self.flat, energy)
        return np.asarray(energy + self.log_base(x).sum(axis=1))

    def conditional_log_likelihoods(
        self, x: FloatArray, shift: FloatArray | None = None
    ) -> FloatArray:
        """Return log p(x_s | all other x) in nats, (n, p), for x (n, p).

        shift : (n, p), added to eta_1, for offsets and covariates.
        """
        eta = self._shifted_eta(x, shift)
        value = empty(x.shape)
        for family, nodes in self.groups:
            rows = np.ascontiguousarray(eta[:, nodes].reshape(-1, eta.shape[2]))
            value[:, nodes] = family.derivatives(rows)[0].reshape(len(x), len(nodes))
        fit = np.einsum("npk,npk->np", eta, self.family.statistics(x, self.k))
        return np.asarray(fit - value + self.log_base(x))

    def squared_residuals(
        self, x: FloatArray, shift: FloatArray | None = None
    ) -> tuple[FloatArray, FloatArray]:
        """Return (T - E[T])^2 and Var[T] of each entry given the others, (n, p) each.

        Arguments as in `conditional_log_likelihoods`.
        """
        eta = self._shifted_eta(x, shift)
        squared, variance = empty(x.shape), empty(x.shape)
        for family, nodes in self.groups:
            rows = np.ascontiguousarray(eta[:, nodes].reshape(-1, eta.shape[2]))
            _, mean, covariance = family.derivatives(rows)
            t = family.statistics(x[:, nodes], self.k)[..., 0]
            squared[:, nodes] = (t - mean[:, 0].reshape(t.shape)) ** 2
            variance[:, nodes] = covariance[:, 0, 0].reshape(t.shape)
        return squared, variance

    def _shifted_eta(self, x: FloatArray, shift: FloatArray | None) -> FloatArray:
        eta = self.eta(x)
        if shift is not None:
            eta[:, :, 0] += shift
        return eta

    def pseudo_log_likelihood(self, x: sparse.csr_matrix, shift: FloatArray) -> FloatArray:
        """Return sum_s log p(x_s | all other x) of the rows of x, CSR (n, p), in nats, (n,).

        shift : (n, p), added to eta_1.
        Raises InvalidInputError if a log-likelihood overflows.
        """
        size = max(1, ENTRIES // self.intercepts.size)
        parts = [slice(start, start + size) for start in range(0, x.shape[0], size)]
        sums = [
            self.conditional_log_likelihoods(x[part].toarray(), shift[part]).sum(axis=1)
            for part in parts
        ]
        log_likelihood = np.concatenate(sums)
        undefined = np.flatnonzero(np.isnan(log_likelihood))
        if undefined.size:
            raise InvalidInputError(
                f"row {undefined[0]} of X has no log-likelihood: sums of the model's parameters "
                "overflow; fit it again"
            )
        return log_likelihood

    def conditional_log_partition(self, node: int, x: FloatArray) -> FloatArray:
        """Return A (n,) of the conditional of a node, given the others in the rows of x (n, p)."""
        eta = np.ascontiguousarray(self.eta(x)[:, node])
        return self.families[node].derivatives(eta)[0]


def unflatten(
    families: tuple[Base, ...],
    k: int,
    intercepts: FloatArray,
    sizes: IntArray,
    roots: IntArray,
    members: IntArray,
    values: FloatArray,
    slopes: FloatArray,
) -> Parameters:
    """Return the parameters from the arrays of `Parameters.flat`, its inverse."""
    terms = sorted({(int(j), int(l)) for j, l in zip(roots, sizes, strict=True)})
    interactions = []
    for root, size in terms:
        of_term = (sizes == size) & (roots == root)
        interactions.append(
            Interactions(Term(size, root), members[of_term, :size], values[of_term])
        )
    return Parameters(families, k, intercepts, tuple(interactions), slopes)
