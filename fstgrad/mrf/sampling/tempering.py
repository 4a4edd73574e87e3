"""Parallel tempering: a chain that moves between distant modes.

Replica k samples the model with the scores beta_k s(y), 1 = beta_0 > ... > beta_K.  After each
sweep, neighbouring replicas a and b are exchanged with probability
min(1, exp((beta_a - beta_b) (s_b - s_a))), which leaves the product of their distributions
invariant (Geyer 1991; Swendsen and Wang 1986).
"""

import numpy as np

from fstgrad.core.checks import IntArray
from fstgrad.mrf.keys import new_keys
from fstgrad.mrf.sampling.chains import Chain
from fstgrad.mrf.scored_graph import ScoredGraph

REPLICAS = 20
LEAST = 0.25  # the smallest beta


class TemperedChain:
    """A chain of 20 replicas with beta from 1 to 0.25; `labels` are those at beta = 1.

    Parameters
    ----------
    model, labels, key
        As in `Chain`; all replicas start at `labels`.
    """

    def __init__(self, model: ScoredGraph, labels: IntArray, key: int) -> None:
        self.model = model
        self.betas = np.linspace(1.0, LEAST, REPLICAS)
        random = np.random.default_rng(key)
        keys = new_keys(random, REPLICAS)
        self.chains = [
            Chain(scaled(model, float(beta)), "chromatic", labels, own)
            for beta, own in zip(self.betas, keys, strict=True)
        ]
        self.random = random

    @property
    def labels(self) -> IntArray:
        """The labels of the replica at beta = 1."""
        return self.chains[0].labels

    def advance(self, sweeps: int) -> None:
        """Make `sweeps` sweeps of every replica, with exchanges after each."""
        for _ in range(sweeps):
            for chain in self.chains:
                chain.advance(1)
            scores = [self.model.score(chain.labels) for chain in self.chains]
            for a in range(REPLICAS - 1):
                b = a + 1
                gain = (self.betas[a] - self.betas[b]) * (scores[b] - scores[a])
                if np.log(self.random.random()) < gain:
                    first, second = self.chains[a], self.chains[b]
                    first.labels, second.labels = second.labels, first.labels
                    scores[a], scores[b] = scores[b], scores[a]


def scaled(model: ScoredGraph, beta: float) -> ScoredGraph:
    """Return the model with all scores times beta > 0 (not its offset); hard zeros remain."""
    return model.with_scores(
        beta * model.scores.node, beta * model.scores.edge, beta * model.factors.table
    )
