"""Lattices: distributions over hypotheses of any length, and losses along them."""

from fstgrad.strings.lattices.composition import LatticeLoss
from fstgrad.strings.lattices.lattice import Lattice

__all__ = ["Lattice", "LatticeLoss"]
