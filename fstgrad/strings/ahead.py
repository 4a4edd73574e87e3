"""Compile the kernels of a gradient in advance, by running them on the smallest input."""

import numpy as np

from fstgrad.alphabet import Alphabet
from fstgrad.automata.automaton import Level, LossAutomaton
from fstgrad.strings.solve import solve
from fstgrad.strings.tangents import tangent


def compile_kernels() -> None:
    """Compile the kernels of the softmax margin, then those of the risk."""
    apart = Level(np.array([[0, 1]]), np.zeros((1, 2)))
    together = Level(np.zeros((2, 2), dtype=np.int64), np.zeros((2, 2)))
    b = LossAutomaton(Alphabet("ab"), np.arange(2), (apart, together), 0.0, np.zeros(1))
    scores = np.zeros((2, 3, 2))
    solve(scores, b)
    tangent(scores, b, scale=1, slope=1)
