"""The active parameters of a fit, with their penalties and columns."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.grm import kernels
from fstgrad.grm.covariates import NONE, Covariates
from fstgrad.grm.design import Design

if TYPE_CHECKING:
    from fstgrad.grm.kernels.descent import NormalMatrices
    from fstgrad.grm.kernels.design import SparseDesign

WARM_SHARE = 0.75  # at a warm start, sets whose gradient exceeds this share of alpha become active


class Intercepts(NamedTuple):
    """The parameters that every node has for itself: f intercepts and d slopes of covariates.

    coordinates : (f,) int64, the coordinates of eta, from 0, that have an intercept.
    penalised : (f,) bool, which of these intercepts are penalised.
    mean_offset : the weighted mean of the offsets of the rows.  In a fit, offsets and covariates
        have mean 0; the intercept of T is the coefficient of T at their means.
    """

    coordinates: IntArray
    penalised: BoolArray
    covariates: Covariates = NONE
    mean_offset: float = 0.0

    @property
    def width(self) -> int:
        """Return f + d."""
        return self.coordinates.size + self.covariates.count

    def to_model(self, node_coefs: FloatArray, width: int) -> tuple[FloatArray, FloatArray]:
        """Return intercepts (q, width) and slopes (q, d) of z, from node_coefs (q, f + d) of a fit.

        Coordinates without an intercept are 0.
        """
        of_z = self.from_fit_basis(node_coefs)
        f, intercepts = self.coordinates.size, np.zeros((len(node_coefs), width))
        intercepts[:, self.coordinates] = of_z[:, :f]
        return intercepts, of_z[:, f:]

    def from_model(self, intercepts: FloatArray, slopes: FloatArray) -> FloatArray:
        """Return the node_coefs (q, f + d) of a fit, from intercepts (q, c) and slopes (q, d) of z.

        Slopes of another number of covariates are replaced by 0.
        """
        if slopes.shape[1] != self.covariates.count:
            slopes = np.zeros((len(intercepts), self.covariates.count))
        node_coefs = np.concatenate([intercepts[:, self.coordinates], slopes], axis=1)
        return self.to_fit_basis(node_coefs)

    def to_fit_basis(self, node_coefs: FloatArray) -> FloatArray:
        """Return the node_coefs (..., f + d) of a fit from those of the model, a copy."""
        out = self.covariates.to_fit_basis(node_coefs).copy()
        out[..., 0] += self.mean_offset
        return out

    def from_fit_basis(self, node_coefs: FloatArray) -> FloatArray:
        """Return the node_coefs (..., f + d) of the model from those of a fit, a copy."""
        out = self.covariates.from_fit_basis(node_coefs).copy()
        out[..., 0] -= self.mean_offset
        return out


class NormalMatrixLayout(NamedTuple):
    """The normal matrices of q nodes, one behind the other in a vector.

    order (s,) : the slots in the order of their nodes.
    ends (q + 1,) : node i has the slots order[ends[i]:ends[i + 1]].
    offset (q + 1,) : its matrix has the entries offset[i] .. offset[i + 1] - 1.
    unfilled : the places of the slots in the matrices, without entries.
    """

    order: IntArray
    ends: IntArray
    offset: IntArray
    unfilled: "NormalMatrices"


@dataclass
class ActiveSet:
    """The m active parameters: the intercepts and slopes of every node, then sets of variables.

    term, key : (m,) int64, the number of the block of the design and the combinatorial number of
        the set; -1 for intercepts and slopes.
    coef, penalty, ridge : (m,) float64, the values and the weights of |coef| and coef^2 / 2.
    slots : how the parameters act on eta.
    """

    term: IntArray
    key: IntArray
    coef: FloatArray
    penalty: FloatArray
    ridge: FloatArray
    slots: "SparseDesign"

    @cached_property
    def layout(self) -> NormalMatrixLayout:
        """The layout of the normal matrices of the nodes."""
        node = self.slots.node
        order = np.argsort(node, kind="stable")
        place = empty_like(order)
        place[order] = np.arange(order.size)
        ends = np.concatenate([[0], np.cumsum(np.bincount(node))])
        offset = np.concatenate([[0], np.cumsum(np.diff(ends) ** 2)])
        first, last = ends[node], ends[node + 1]
        start = offset[node] + (place - first) * (last - first)
        unfilled = kernels.descent.NormalMatrices(place, first, last, start, np.zeros(0))
        return NormalMatrixLayout(order, ends, offset, unfilled)

    @cached_property
    def entries(self) -> int:
        """The number of entries of the columns of all slots."""
        return int((self.slots.end - self.slots.start).sum())

    @cached_property
    def normal_matrix_products(self) -> float:
        """The number of products of two entries of the same node and sample."""
        samples = int(self.slots.rows.max(initial=-1)) + 1
        return float(kernels.descent.count_products(self.slots, self.layout.order, samples))


def objective(active: ActiveSet, coef: FloatArray, losses: FloatArray) -> float:
    """Return sum of losses (q,) + penalty . |coef| + ridge . coef^2 / 2; inf if not finite."""
    value = float(losses.sum() + active.penalty @ np.abs(coef) + 0.5 * active.ridge @ coef**2)
    return value if np.isfinite(value) else np.inf


def zero_idle_intercepts(active: ActiveSet, direction: FloatArray, idle: BoolArray) -> None:
    """Set the direction (m,) of intercepts to 0 in nodes in which nothing else moves.

    These are nodes without a moving set, whose intercepts and slopes are all `idle` (m,).
    """
    intercepts = np.flatnonzero(active.term < 0)
    is_idle = idle[intercepts]
    if not is_idle.any():
        return
    nodes = active.slots.node
    node_of = nodes[active.slots.pointer[intercepts]]
    is_at_rest = np.ones(int(nodes.max(initial=-1)) + 1, dtype=bool)
    moving = np.repeat((active.term >= 0) & (direction != 0), np.diff(active.slots.pointer))
    is_at_rest[nodes[moving]] = False
    is_at_rest[node_of[~is_idle]] = False
    direction[intercepts[is_at_rest[node_of]]] = 0.0


def violations(gradient: FloatArray, coef: FloatArray, penalty: FloatArray) -> FloatArray:
    """Return the violation (m,) of the optimality condition of each parameter.

    |gradient + penalty * sign(coef)| if coef != 0, else max(|gradient| - penalty, 0).
    """
    active = np.abs(gradient + penalty * np.sign(coef))
    idle = np.maximum(np.abs(gradient) - penalty, 0.0)
    return np.where(coef != 0, active, idle)


def slot_scales(design: Design, block: IntArray, column: IntArray) -> FloatArray:
    """Return the scale (s,) of each column, given by its block (s,) and its number (s,)."""
    out = np.ones(column.size)
    for number, source in enumerate(design.blocks):
        in_block = block == number
        out[in_block] = source.scale[column[in_block]]
    return out


def _distinct(column: IntArray) -> tuple[IntArray, IntArray]:
    """Return the distinct columns, ascending, and the place of each column (s,) among them."""
    if (column[1:] > column[:-1]).all():
        return column, np.arange(column.size)
    return np.unique(column, return_inverse=True)


def activate(
    design: Design,
    of_node: tuple[Intercepts, FloatArray],
    start: FloatArray,
    alpha: float,
    sets: tuple[IntArray, IntArray, FloatArray],
    slots: tuple[IntArray, IntArray, IntArray, IntArray],
) -> ActiveSet:
    """Return the active parameters with their penalties and columns.

    Parameters
    ----------
    of_node : (Intercepts, ridge)
        The parameters of a node, and the weight (q, f + d) of half the square of each.
    start : (q, f + d)
        The intercepts and slopes of q nodes, for the columns of the fit.
    sets : (term, key, coef), (m,) each
        The sets; the penalty of each is alpha times the sum of the scales of its columns.
    slots : (parameter, node, block, column), (s,) each
        The slots of the sets, in the order of their parameters.
    """
    parameter, node, block, column = slots
    intercepts, ridge = of_node
    nodes, fixed = start.shape
    covariates = intercepts.covariates
    n, first = design.samples, nodes * fixed
    counts = np.bincount(parameter, minlength=sets[0].size)
    scale = np.bincount(parameter, slot_scales(design, block, column), minlength=sets[0].size)
    root_of = np.array([b.term.root for b in design.blocks], dtype=np.int64)
    begin, end = empty(parameter.size, dtype=np.int64), empty(parameter.size, dtype=np.int64)
    column_of = np.append(
        np.zeros(intercepts.coordinates.size, np.int64), 1 + np.arange(covariates.count)
    )
    rows: list[IntArray] = [np.arange(n)] * (1 + covariates.count)
    values: list[FloatArray] = [np.ones(n), covariates.columns.ravel()]
    at = n * (1 + covariates.count)
    for number, source in enumerate(design.blocks):
        in_block = np.flatnonzero(block == number)
        used, place = _distinct(column[in_block])
        design.check_entries(at + source.entries(used))
        indptr, block_rows, block_values = source.gather(used)
        begin[in_block], end[in_block] = at + indptr[place], at + indptr[place + 1]
        rows.append(block_rows)
        values.append(block_values)
        at += int(indptr[-1])
    coordinate_of = np.concatenate(
        [intercepts.coordinates, np.zeros(covariates.count, dtype=np.int64)]
    )
    penalties = np.concatenate([alpha * intercepts.penalised, covariates.penalties])
    begin_own, none = n * np.tile(column_of, nodes), np.full(first, -1)
    return ActiveSet(
        term=np.concatenate([none, sets[0]]),
        key=np.concatenate([none, sets[1]]),
        coef=np.concatenate([start.ravel(), sets[2]]),
        penalty=np.concatenate([np.tile(penalties, nodes), alpha * scale]),
        ridge=np.concatenate([ridge.ravel(), np.zeros(sets[0].size)]),
        slots=kernels.design.SparseDesign(
            np.concatenate([[0], np.cumsum(np.concatenate([np.ones(first, np.int64), counts]))]),
            np.concatenate([np.repeat(np.arange(nodes), fixed), node]),
            np.concatenate(
                [np.tile(coordinate_of, nodes), root_of[block] - 1 if parameter.size else block]
            ),
            np.concatenate([begin_own, begin]),
            np.concatenate([begin_own + n, end]),
            np.concatenate(rows),
            np.concatenate(values),
        ),
    )
