"""Lattices: distributions over hypotheses of any length, and their losses against a target."""

from fstgrad.lattices.lattice import Lattice
from fstgrad.lattices.loss import LatticeLoss

__all__ = ["Lattice", "LatticeLoss"]
