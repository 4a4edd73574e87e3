"""Distributions over strings: log Z, gradient terms, samples, best strings, objectives."""

from fstgrad.estimates import SampledObjective
from fstgrad.lattices import Lattice, LatticeLoss
from fstgrad.strings.budget import Budget
from fstgrad.strings.caps import CapChoice, choose_cap
from fstgrad.strings.consensus import Consensus, mbr
from fstgrad.strings.distribution import StringDistribution
from fstgrad.strings.margins import direct_loss, hinge, raml
from fstgrad.strings.objectives import risk, softmax_margin
from fstgrad.strings.sampled import sampled_risk, sampled_softmax_margin

__all__ = [
    "Budget",
    "CapChoice",
    "Consensus",
    "Lattice",
    "LatticeLoss",
    "SampledObjective",
    "StringDistribution",
    "choose_cap",
    "direct_loss",
    "hinge",
    "mbr",
    "raml",
    "risk",
    "sampled_risk",
    "sampled_softmax_margin",
    "softmax_margin",
]
