"""Random lattices for the tests, and their tables beside those of the oracle."""

import numpy as np

import fstgrad as fg
from tests.oracles.lattices import Paths

ABC = fg.Alphabet("abc")


class RandomLattice:
    """A random acyclic acceptor: epsilons, duplicate strings, useless states, more ends."""

    def __init__(self, seed, *, scale=1.0, masked=False, states=6):
        rng = np.random.default_rng(seed)
        names = rng.permutation(3 * states)[: states + 2].tolist()
        self.arcs = []
        for i in range(states):
            for j in range(i + 1, states):
                for _ in range(int(rng.choice(4, p=[0.4, 0.4, 0.15, 0.05]))):
                    label = int(rng.choice([-1, 0, 1, 2], p=[0.25, 0.25, 0.25, 0.25]))
                    score = float(scale * rng.normal())
                    if masked and rng.random() < 0.15:
                        score = -np.inf
                    self.arcs.append((names[i], names[j], label, score))
        # one state that nothing reaches and one that leads nowhere
        self.arcs.append((names[states], names[states - 1], 0, 0.0))
        self.arcs.append((names[0], names[states + 1], 1, 0.0))
        self.arcs = [self.arcs[i] for i in rng.permutation(len(self.arcs))]
        ends = rng.choice(states, size=int(rng.integers(1, 3)), replace=False)
        self.final = {names[i]: float(rng.choice([0.0, scale * rng.normal()])) for i in ends}
        self.start = names[0]
        self.paths = Paths(self.arcs, self.start, self.final)

    def lattice(self, abc=ABC):
        source, target, label, score = zip(*self.arcs, strict=True)
        return fg.Lattice.from_arcs(
            source, target, label, score, abc, final=self.final, start=self.start
        )

    def table(self, lattice, values):
        """A table (A,) of the lattice in the order of the oracle's: arcs, then final states."""
        result = np.zeros(self.paths.num_arcs + len(self.paths.states))
        result[lattice.origin[~lattice.ends]] = values[~lattice.ends]
        ends = [self.paths.states.index(state) for state in lattice.origin[lattice.ends]]
        result[self.paths.num_arcs + np.array(ends, dtype=int)] = values[lattice.ends]
        return result

    def same(self, lattice, values, expected, **tolerance):
        """Compare a table with the oracle's; a single plain final state has no arc of its own."""
        mine = self.table(lattice, values)
        used = len(mine) if lattice.ends.any() else self.paths.num_arcs
        np.testing.assert_allclose(mine[:used], expected[:used], **tolerance)
