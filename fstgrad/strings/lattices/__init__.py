"""Lattices: distributions over hypotheses of any length, and their losses against a target.

Reading order
-------------
- `kernels`, `graph` : the compiled loops; acyclic graphs and sums over their paths.
- `build`, `search` : lattices from arcs, FSTs, text; the strings of a lattice.
- `confusion` : the paths aligned to one of them.
- `rows`, `loss` : rows of M along a lattice; the loss of its strings against one target.
- `lattice` : `Lattice`, the distribution over its paths.
- `objectives`, `sampled` : objectives of training, exact and sampled.
"""

from fstgrad.strings.lattices.lattice import Lattice
from fstgrad.strings.lattices.loss import LatticeLoss

__all__ = ["Lattice", "LatticeLoss"]
