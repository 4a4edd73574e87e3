"""Distributions over strings: log Z, gradient terms, samples, best strings, objectives.

Reading order
-------------
- `kernels`, `solve` : the compiled passes; log Z and Q by them.
- `algebra`, `paths`, `passes` : semirings with derivatives; factors of a path; the passes in NumPy.
- `tangents`, `search` : directional derivatives of log Z and Q; samples and k best strings.
- `distribution` : `StringDistribution`.
- `objectives`, `margins`, `latent`, `consensus`, `caps` : objectives of training; gold strings with
  many latent strings; minimum Bayes risk; the choice of a cap.
- `budget`, `chain`, `proposals`, `sampled` : sampled objectives with valid intervals.
- `bigrams`, `batches` : scores that are sums; many strings in one call.
- `linear_chain`, `packed_chains` : batches of chains without a loss.
"""

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
