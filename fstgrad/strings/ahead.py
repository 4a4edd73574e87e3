"""The kernels of a first gradient that follow those of determinization, on the smallest input."""

import numpy as np

from fstgrad.automata.determinize import RawAutomaton, RawLevel
from fstgrad.automata.minimize import minimize
from fstgrad.strings.solve import no_loss, solve
from fstgrad.strings.tangents import tangent


def compile_kernels() -> None:
    """Compile what a first gradient needs of the passes, then minimization, then risks."""
    scores, b = np.zeros((2, 3, 2)), no_loss(2, 2)
    solve(scores, b)
    zeros = np.zeros((1, 1), dtype=np.int64)
    minimize(RawAutomaton((RawLevel(zeros, zeros),), 0, zeros[0]))
    tangent(scores, b, scale=1, slope=1)
