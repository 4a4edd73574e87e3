"""Maximize the likelihood of pairs in the weights of a transducer, by expectation-maximization.

E-step: compute the expected counts of all events over all alignments.  M-step: if no class is in
several groups, its probability is its share of the counts of its group.  Otherwise L-BFGS maximizes
the expected complete log-likelihood, which is concave in theta.
"""

from dataclasses import dataclass, replace

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray
from fstgrad.costs.pairs import Pairs
from fstgrad.costs.parameter_tying import ParameterTying, gates
from fstgrad.costs.transducer import PairTransducer


@dataclass(frozen=True)
class Weights:
    """The costs theta (K,) of the classes, in nats; the log-probabilities (2 S,) of the gates."""

    theta: FloatArray
    log_gate: FloatArray


@dataclass(frozen=True)
class Estimator:
    """EM for one transducer under its ties.

    Attributes
    ----------
    pseudo : (cells,) float64, counts added to each cell: a Dirichlet prior with 1 + pseudo.
    gate_pseudo : float, counts added to each side of a gate.
    """

    pair_transducer: PairTransducer
    ties: ParameterTying
    pseudo: FloatArray
    gate_pseudo: float

    def initial(self) -> Weights:
        """Return the weights for the transducer's own costs: the mean cost of each class."""
        ties = self.ties
        cost = self.pair_transducer.cost[ties.events]
        theta = np.bincount(ties.class_of, cost) / np.bincount(ties.class_of)
        return Weights(theta, self._even_gates())

    def perturbed(self, weights: Weights, rng: np.random.Generator) -> Weights:
        """Return the weights of a restart: standard normal noise is added to each theta."""
        return replace(weights, theta=weights.theta + rng.standard_normal(len(weights.theta)))

    def log_weights(self, weights: Weights) -> FloatArray:
        """Return the log-probabilities (A + S,) of all events under the weights."""
        return self.ties.log_weights(
            weights.theta, weights.log_gate, len(self.pair_transducer.cost)
        )

    def log_prior(self, weights: Weights) -> float:
        """Return the log-prior of the weights, in nats, up to a constant."""
        log_cell = self.ties.log_cells(weights.theta)
        has_prior = self.pseudo > 0
        value = float(self.pseudo[has_prior] @ log_cell[has_prior])
        if self.gate_pseudo and len(weights.log_gate):
            exists = np.bincount(self.ties.gate, minlength=len(weights.log_gate)) > 0
            value += self.gate_pseudo * float(weights.log_gate[exists].sum())
        return value

    def step(self, weights: Weights, pairs: Pairs) -> tuple[FloatArray, FloatArray, Weights]:
        """Return the log-sums (N,) and counts (A + S,) under the weights, and the next weights."""
        values, counts = self.pair_transducer.expected_counts(pairs, self.log_weights(weights))
        return values, counts, self.maximized(weights, counts)

    def maximized(self, weights: Weights, counts: FloatArray) -> Weights:
        """Return the weights that maximize expected complete log-likelihood plus log-prior."""
        ties = self.ties
        seen = counts[ties.events]
        cells = np.bincount(ties.cell, seen) + self.pseudo
        # a class keeps its weight if no alignment meets any of its groups
        is_met_group = np.bincount(ties.cell_group, cells) > 0
        is_met = np.bincount(ties.cell_class, is_met_group[ties.cell_group]) > 0
        total = np.bincount(ties.cell_class, cells)
        with np.errstate(divide="ignore"):
            if ties.has_shared_classes:
                theta = self._maximize_shared(weights.theta, cells, total > 0)
                theta = np.where(is_met & (total == 0), np.inf, theta)
            else:
                theta = -np.log(total / ties.cell_size[np.argsort(ties.cell_class)])
                theta = np.where(is_met, theta, weights.theta)
        return Weights(theta, gates(ties, seen, self.gate_pseudo, weights.log_gate))

    def _maximize_shared(self, theta: FloatArray, cells: FloatArray, free: BoolArray) -> FloatArray:
        """Return theta if classes are in several groups; the objective does not fall."""
        from scipy.optimize import minimize

        ties = self.ties
        in_group = np.bincount(ties.cell_group, cells)
        used = cells > 0

        def negative(values: FloatArray) -> tuple[float, FloatArray]:
            all_theta = np.where(free, theta, np.inf)
            all_theta[free] = values
            log_cell = ties.log_cells(all_theta)
            share = np.where(np.isfinite(log_cell), np.exp(log_cell), 0.0)
            slope: FloatArray = cells - in_group[ties.cell_group] * share
            value = -float(cells[used] @ log_cell[used])
            by_class: FloatArray = np.zeros(len(theta))
            np.add.at(by_class, ties.cell_class, slope)
            return value, by_class[free]

        start = np.where(np.isfinite(theta[free]), theta[free], 50.0)
        optimum = minimize(negative, start, jac=True, method="L-BFGS-B", options={"gtol": 1e-9})
        result = theta.copy()
        if optimum.fun <= negative(start)[0]:
            result[free] = optimum.x - optimum.x.min()  # theta counts up to a constant
        return result

    def _even_gates(self) -> FloatArray:
        """Return gates with equal shares for the sides that have events; empty without gates."""
        if (self.ties.gate < 0).all():
            return np.zeros(0)
        size = 2 * self.pair_transducer.num_states
        exists = (np.bincount(self.ties.gate, minlength=size) > 0).reshape(-1, 2)
        with np.errstate(divide="ignore"):
            share = np.log(exists / np.maximum(exists.sum(axis=1, keepdims=True), 1))
        return np.asarray(share.ravel(), dtype=np.float64)
