"""Distributions over strings: log Z, gradient terms, samples, best strings, objectives."""

from fstgrad.strings.caps import CapChoice, choose_cap
from fstgrad.strings.distribution import StringDistribution
from fstgrad.strings.objectives import risk, softmax_margin

__all__ = ["CapChoice", "StringDistribution", "choose_cap", "risk", "softmax_margin"]
