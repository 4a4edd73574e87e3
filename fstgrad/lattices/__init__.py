"""Lattices: distributions over hypotheses of any length, and losses along them."""

from fstgrad.lattices.lattice import Lattice
from fstgrad.lattices.loss import LatticeLoss

__all__ = ["Lattice", "LatticeLoss"]
