"""Distributions over strings: log Z, gradient terms, samples, best strings, objectives."""

from fstgrad.strings.distribution import StringDistribution
from fstgrad.strings.lattices import Lattice, LatticeLoss
from fstgrad.strings.objectives import risk, softmax_margin

__all__ = ["Lattice", "LatticeLoss", "StringDistribution", "risk", "softmax_margin"]
