"""The tied pseudo-likelihood: all node regressions at once, one parameter for each set.

    minimise over theta:  sum_s mean_i w_i ( A_s(eta_si) - <eta_si, t(x_is)> )
                          + alpha sum_S |S| |theta_S|.

This is the sum of the node regressions with a single parameter for the |S| estimates of theta_S.
It is convex, and its minimum is at most its value for the independent model: on the data of the
fit, the likelihood of the nodes given the others is never below that of independent variables.

A set S violates its optimality condition only if the gradient of one of its nodes exceeds alpha.
So one scan over the columns of every node finds all candidates; their tied gradients are then
computed from the columns of all their nodes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.uninitialized import empty
from fstgrad.grm import kernels
from fstgrad.grm.active_set import (
    WARM_SHARE,
    ActiveSet,
    activate,
    slot_scales,
    violations,
)
from fstgrad.grm.blocks import ranks
from fstgrad.grm.design import Design
from fstgrad.grm.newton import NewtonSolver
from fstgrad.grm.parameters import Interactions, Parameters

SETTLED = 0.25  # a warm start first reduces the slopes of intercepts to this share of alpha
ROUNDING = 1e-15  # tied gradients of a smaller share of those of nodes are sums of opposites
AT_ONCE = 1_000_000  # sets whose tied gradients are computed at once
Gradients = Callable[[int, IntArray, IntArray], FloatArray]


@dataclass(frozen=True)
class JointFit:
    """The solution: the parameters and their certificate.

    kkt : (p,) float64, for each node the largest violation of the optimality conditions of its
        intercepts and of all candidate sets that contain it, in units of one node's gradient.
    objective : float, nats.  steps, scans : int.
    """

    parameters: Parameters
    kkt: FloatArray
    objective: float
    steps: int
    scans: int


@dataclass
class JointRegression:
    """The problem of all nodes.

    solver, design : of all nodes.
    varying : (p,) bool, the columns that vary; only these can be in sets.
    alpha, tol, max_iter : as in `GeneralizedRootModel`.
    """

    solver: NewtonSolver
    design: Design
    varying: BoolArray
    alpha: float
    tol: float
    max_iter: int

    def fit(self, start: Parameters) -> JointFit:
        """Return the solution, from `start`."""
        active = self.active_set_of(start)
        scans, before = 0, -1
        if (active.term >= 0).any():  # warm start: first add the sets that will become active
            residual = self.solver.residual(active)
            if not self._is_settled(active, residual):
                residual = self.solver.solve(active, max(0.5 * self.tol, SETTLED * self.alpha))[0]
            active = self._eager(active, residual)
            residual = self.solver.solve(active, 0.5 * self.tol, 1)[0]
            active = self._eager(active, residual)
        target = max(0.9 * self.tol, 0.02 * self.alpha)
        while True:
            residual, slopes, objective = self.solver.solve(active, target)
            term, key, excess = self.violators(residual, active, self.alpha)
            scans += 1
            kkt = self._certificate(active, slopes, term, key, excess)
            if kkt.max(initial=0.0) <= self.tol or scans >= self.max_iter:
                break
            if self.solver.steps == before and not (excess > 0).any():
                break  # at the limit of rounding: neither a step nor a new set
            before = self.solver.steps
            target = max(0.9 * self.tol, min(0.1 * float(kkt.max()), target))
            active = self._grow(active, term[excess > 0], key[excess > 0])
        return JointFit(self._parameters(active, start), kkt, objective, self.solver.steps, scans)

    def _is_settled(self, active: ActiveSet, residual: FloatArray) -> bool:
        """Return whether no slope of an intercept exceeds SETTLED * alpha."""
        gradient = kernels.design.gradients(active.slots, residual) + active.ridge * active.coef
        slopes = violations(gradient, active.coef, active.penalty)[active.term < 0]
        return float(slopes.max(initial=0.0)) <= SETTLED * self.alpha

    def _eager(self, active: ActiveSet, residual: FloatArray) -> ActiveSet:
        """Return the active parameters, adding sets whose gradients exceed WARM_SHARE * alpha."""
        term, key, excess = self.violators(residual, active, WARM_SHARE * self.alpha)
        return self._grow(active, term[excess > 0], key[excess > 0])

    def active_set_of(self, start: Parameters) -> ActiveSet:
        """Return the active parameters: the intercepts and the sets of `start`."""
        number_of = {block.term: number for number, block in enumerate(self.design.blocks)}
        none = np.zeros(0, dtype=np.int64)
        terms, keys, coefs = [none], [none], [np.zeros(0)]
        for fitted in start.interactions:
            if fitted.term not in number_of:
                continue
            key = ranks(fitted.sets, self.design.binomial)
            candidates = np.ones(key.size, dtype=bool)
            if fitted.term.size in self.design.candidates:
                candidates = self.design.candidates[fitted.term.size]
                candidates = np.isin(key, ranks(candidates, self.design.binomial))
            terms.append(np.full(int(candidates.sum()), number_of[fitted.term]))
            keys.append(key[candidates])
            coefs.append(fitted.values[candidates])
        node_coefs = self.solver.intercepts.from_model(start.intercepts, start.slopes)
        return self._activate(
            node_coefs, np.concatenate(terms), np.concatenate(keys), np.concatenate(coefs)
        )

    def _activate(
        self, intercepts: FloatArray, term: IntArray, key: IntArray, coef: FloatArray
    ) -> ActiveSet:
        slots = self._slots(term, key)
        of_node = self.solver.intercepts, self.solver.ridge
        return activate(self.design, of_node, intercepts, self.alpha, (term, key, coef), slots)

    def _slots(
        self, term: IntArray, key: IntArray
    ) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Return (parameter, node, block, column) of the slots of sets, (s,) each.

        Set `parameter` has a slot for each of its nodes with a column; sorted by parameter.
        """
        none = np.zeros(0, dtype=np.int64)
        parts: list[list[IntArray]] = [[none], [none], [none], [none]]
        for number, block in enumerate(self.design.blocks):
            in_block = np.flatnonzero(term == number)
            sets = self.design.sets(block, key[in_block])
            for place in range(block.term.size):
                smaller = np.delete(sets, place, axis=1)
                column = block.find(ranks(smaller, self.design.binomial))
                there = column >= 0
                columns = (in_block, sets[:, place], np.full(in_block.size, number), column)
                for part, values in zip(parts, columns, strict=True):
                    part.append(values[there])
        parameter, node, block_of, column = (np.concatenate(part) for part in parts)
        order = np.argsort(parameter, kind="stable")
        return parameter[order], node[order], block_of[order], column[order]

    def violators(
        self, residual: FloatArray, active: ActiveSet, alpha: float
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Return (term, key, excess) (m,) of inactive sets that one of their nodes would select.

        The excess is |tied gradient| / (scale of the set) - alpha; the set violates its optimality
        condition if it is positive.  If more sets are selected than may become active at
        once, those with the largest excess are returned.  residual : (p, n, c).
        """
        tables = self.design.gradient_tables(residual)
        if tables is not None:
            in_tables = [
                [self._selected_in(number, table, alpha)] for number, table in enumerate(tables)
            ]
            return self._excesses(
                in_tables, lambda n, node, column: tables[n][node, column], active, alpha
            )
        blocks = range(len(self.design.blocks))

        def scan(node: int) -> list[IntArray]:
            return [self._selected_by(number, node, residual[node], alpha) for number in blocks]

        def gradients_of(number: int, node: IntArray, column: IntArray) -> FloatArray:
            gradient = empty(node.size)
            for s in np.unique(node):
                of_node = node == s
                gradient[of_node] = self.design.gradients(number, column[of_node], residual[s])
            return gradient

        selected: list[list[IntArray]] = [[] for _ in blocks]
        batches, waiting = [], 0
        for keys_of_node in self.solver.apply(scan, np.flatnonzero(self.varying).tolist()):
            for number in blocks:
                selected[number].append(keys_of_node[number])
                waiting += keys_of_node[number].size
            if waiting > AT_ONCE:
                batches.append(self._excesses(selected, gradients_of, active, alpha))
                selected, waiting = [[] for _ in blocks], 0
        batches.append(self._excesses(selected, gradients_of, active, alpha))
        term, key, excess = (np.concatenate(values) for values in zip(*batches, strict=True))
        if len(batches) > 1:  # a set may be in several batches, selected by different nodes
            first = np.unique(np.stack([term, key]), axis=1, return_index=True)[1]
            term, key, excess = term[first], key[first], excess[first]
        strongest = self.design.strongest(excess)
        return term[strongest], key[strongest], excess[strongest]

    def largest_gradient(self, residual: FloatArray, active: ActiveSet, top: float) -> float:
        """Return the largest |tied gradient| / scale of an inactive set, residual (p, n, c).

        top : the largest |gradient| / scale of a column of one node.  If the tied gradient of a set
        exceeds a bound, so does the gradient of one of its nodes; so the bound is lowered from
        `top` until the largest tied gradient found exceeds it.
        """
        bound = top
        while bound > ROUNDING * top:
            bound *= 0.5
            excess = float(self.violators(residual, active, bound)[2].max(initial=-np.inf))
            if excess >= 0:
                return bound + excess
        return 0.0

    def _excesses(
        self,
        selected: list[list[IntArray]],
        gradients_of: Gradients,
        active: ActiveSet,
        alpha: float,
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """Return (term, key, excess) of the inactive sets selected for each term.

        gradients_of(number, node, column) : the gradients (m,) of columns of a block for nodes
        (m,).
        """
        blocks = self.design.blocks
        terms, keys = [], []
        none = np.zeros(0, dtype=np.int64)
        for number in range(len(blocks)):
            sets = np.unique(np.concatenate([none, *selected[number]]))
            sets = np.setdiff1d(sets, active.key[active.term == number], assume_unique=True)
            terms.append(np.full(sets.size, number))
            keys.append(sets)
        term, key = np.concatenate([none, *terms]), np.concatenate([none, *keys])
        parameter, node, block, column = self._slots(term, key)
        gradient = np.zeros(term.size)
        for number in range(len(blocks)):
            in_block = block == number
            gradients = gradients_of(number, node[in_block], column[in_block])
            gradient += np.bincount(parameter[in_block], gradients, minlength=term.size)
        scale = np.bincount(parameter, slot_scales(self.design, block, column), minlength=term.size)
        excess: FloatArray = np.abs(gradient) / np.maximum(scale, 1e-300) - alpha
        strongest = self.design.strongest(excess)
        return term[strongest], key[strongest], excess[strongest]

    def _selected_by(self, number: int, node: int, residual: FloatArray, alpha: float) -> IntArray:
        """Return the keys of the sets of term `number` that the node alone would select."""
        block = self.design.blocks[number]
        columns = self.design.columns(block, node)
        gradient = np.abs(self.design.gradients(number, columns, residual))
        strong = columns[gradient > alpha * block.scale[columns]]
        return self._keys(number, np.full(strong.size, node), strong)

    def _selected_in(self, number: int, table: FloatArray, alpha: float) -> IntArray:
        """Return the keys of the sets of term `number` that one of their nodes would select.

        table : (p, C), the gradients of the columns of the block for each node.
        """
        block = self.design.blocks[number]
        strong = np.abs(table) > alpha * block.scale
        strong[~self.varying] = False
        for place in range(block.term.size - 1):
            strong[block.members[:, place], np.arange(block.keys.size)] = False
        keys = self._keys(number, *np.nonzero(strong))
        if block.term.size in self.design.candidates:
            allowed = self.design.candidates[block.term.size]
            keys = keys[np.isin(keys, ranks(allowed, self.design.binomial))]
        return keys

    def _keys(self, number: int, nodes: IntArray, columns: IntArray) -> IntArray:
        """Return the combinatorial numbers (m,) of nodes (m,) together with columns (m,)."""
        members = self.design.blocks[number].members[columns]
        sets = np.sort(np.concatenate([nodes[:, None], members], axis=1), axis=1)
        return ranks(sets, self.design.binomial)

    def _certificate(
        self,
        active: ActiveSet,
        slopes: FloatArray,
        term: IntArray,
        key: IntArray,
        excess: FloatArray,
    ) -> FloatArray:
        """Return the largest violation of the optimality conditions of each node, (p,)."""
        nodes = len(self.solver.families)
        is_intercept = active.term < 0
        worst: FloatArray = slopes[is_intercept].reshape(nodes, -1).max(axis=1)
        scale = active.penalty[~is_intercept] / self.alpha
        every = (
            (
                active.term[~is_intercept],
                active.key[~is_intercept],
                slopes[~is_intercept] / np.maximum(scale, 1e-300),
            ),
            (term, key, excess),
        )
        for terms, keys, violation in every:
            for number, block in enumerate(self.design.blocks):
                of_term = terms == number
                sets = self.design.sets(block, keys[of_term])
                np.maximum.at(worst, sets.ravel(), np.repeat(violation[of_term], block.term.size))
        return worst

    def _grow(self, active: ActiveSet, term: IntArray, key: IntArray) -> ActiveSet:
        """Return the active parameters without zero sets, and with the sets (term, key) added."""
        nonzero = (active.term >= 0) & (active.coef != 0)
        intercepts = active.coef[active.term < 0].reshape(len(self.solver.families), -1)
        return self._activate(
            intercepts,
            np.concatenate([active.term[nonzero], term]),
            np.concatenate([active.key[nonzero], key]),
            np.concatenate([active.coef[nonzero], np.zeros(term.size)]),
        )

    def _parameters(self, active: ActiveSet, blank: Parameters) -> Parameters:
        q, width = blank.intercepts.shape
        node_coefs = active.coef[active.term < 0].reshape(q, -1)
        intercepts, slopes = self.solver.intercepts.to_model(node_coefs, width)
        interactions = []
        for number, block in enumerate(self.design.blocks):
            of_term = (active.term == number) & (active.coef != 0)
            order = np.argsort(active.key[of_term], kind="stable")
            sets = self.design.sets(block, active.key[of_term][order])
            interactions.append(Interactions(block.term, sets, active.coef[of_term][order]))
        return Parameters(blank.families, blank.k, intercepts, tuple(interactions), slopes)
