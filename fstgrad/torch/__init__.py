"""Objectives of fstgrad as PyTorch functions and modules.

The gradient comes from the exact passes of each family, not from autograd through them.  Tensors
may have any floating-point dtype, on the CPU or on a GPU.  All computations on the CPU are in
float64; results have the dtype (half precision: float32) and the device of the scores.

Index
-----
Each function has a module of the same name with a parameter `reduction`.

- strings : `softmax_margin`, `risk`, `crf_nll`; `SoftmaxMarginLoss`, `RiskLoss`, `CRFLoss`.
- alignments with blanks : `ctc_nll`, `ctc_softmax_margin`, `ctc_risk`; `CTCLoss`,
  `CTCSoftmaxMarginLoss`, `CTCRiskLoss`; `ctc_align`, `CTCAlignment`.
- n-best lists : `nbest_risk`; `NBestRiskLoss`.
- chains : `CRF`, `linear_chain_nll`; `LinearChainLoss`; `nn.CRF`, a layer with parameters.
- lattices : `lattice_log_partition`, `lattice_marginals`, `lattice_entropy`,
  `lattice_softmax_margin`, `lattice_risk`, `lattice_crf_nll`; `LatticeSoftmaxMarginLoss`,
  `LatticeRiskLoss`, `LatticeCRFLoss`.
- trees : `spanning_tree_log_partition`, `spanning_tree_marginals`, `spanning_tree_nll`,
  `spanning_tree_partial_nll`, `spanning_tree_entropy`, `spanning_tree_kl`, `spanning_tree_risk`,
  `spanning_tree_generalized_expectation`; `SpanningTreeLoss`, `SpanningTreeEntropyLoss`,
  `SpanningTreeKLLoss`, `SpanningTreeRiskLoss`, `SpanningTreeGeneralizedExpectationLoss`.
- costs : `TransducerCosts`, a loss with the costs of its transducer as parameters.
- Markov random fields : `mrf_nll`, `mrf_log_partition`, `mrf_marginals`,
  `mrf_dense_marginals`; `MRFLoss`.
- predictions (decode, nbest, sample, mbr) : `Strings`, `CRF`, `LatticeStrings`, `Trees`,
  `RandomFields`.
- estimates : `Sampling`, `Estimate`.
- objectives of your own : `function_of`, `module_of`.
- where to compute : `use_device_paths`.

Reading order
-------------
- `arguments`, `arrays`, `transforms`, `threads`, `state_names` : checks; tensors to arrays and
  back; what observes a tensor; threads; names beside a `state_dict`.
- `device`, `fused` : the same objectives in operations of PyTorch, and kernels in Triton.
- `operators` : the custom operator of all objectives.
- `risk_hessian`, `strings` : the objectives of strings.
- `ctc`, `nbest`, `lattices`, `mrf`, `mrf_dense`, `costs` : those of the other structures.
- `chain_operators`, `crf` : those of chains.
- `tree_operators`, `trees` : those of trees.
- `modules`, `nn`, `predictions` : the objectives as modules; layers with parameters; best
  structures and samples.
"""

from fstgrad.objectives.sampling import Estimate, Sampling
from fstgrad.torch import nn
from fstgrad.torch.arrays import use_device_paths
from fstgrad.torch.costs import TransducerCosts
from fstgrad.torch.crf import CRF, linear_chain_nll
from fstgrad.torch.ctc import CTCAlignment, ctc_align, ctc_nll, ctc_risk, ctc_softmax_margin
from fstgrad.torch.lattices import (
    lattice_crf_nll,
    lattice_entropy,
    lattice_log_partition,
    lattice_marginals,
    lattice_risk,
    lattice_softmax_margin,
)
from fstgrad.torch.modules import (
    CRFLoss,
    CTCLoss,
    CTCRiskLoss,
    CTCSoftmaxMarginLoss,
    LatticeCRFLoss,
    LatticeRiskLoss,
    LatticeSoftmaxMarginLoss,
    LinearChainLoss,
    MRFLoss,
    NBestRiskLoss,
    RiskLoss,
    SoftmaxMarginLoss,
    SpanningTreeEntropyLoss,
    SpanningTreeGeneralizedExpectationLoss,
    SpanningTreeKLLoss,
    SpanningTreeLoss,
    SpanningTreeRiskLoss,
    module_of,
)
from fstgrad.torch.mrf import mrf_log_partition, mrf_marginals, mrf_nll
from fstgrad.torch.mrf_dense import mrf_dense_marginals
from fstgrad.torch.nbest import nbest_risk
from fstgrad.torch.operators import function_of
from fstgrad.torch.predictions import LatticeStrings, RandomFields, Strings, Trees
from fstgrad.torch.strings import crf_nll, risk, softmax_margin
from fstgrad.torch.trees import (
    spanning_tree_entropy,
    spanning_tree_generalized_expectation,
    spanning_tree_kl,
    spanning_tree_log_partition,
    spanning_tree_marginals,
    spanning_tree_nll,
    spanning_tree_partial_nll,
    spanning_tree_risk,
)

__all__ = [
    "CRF",
    "CRFLoss",
    "CTCAlignment",
    "CTCLoss",
    "CTCRiskLoss",
    "CTCSoftmaxMarginLoss",
    "Estimate",
    "LatticeCRFLoss",
    "LatticeRiskLoss",
    "LatticeSoftmaxMarginLoss",
    "LatticeStrings",
    "LinearChainLoss",
    "MRFLoss",
    "NBestRiskLoss",
    "RandomFields",
    "RiskLoss",
    "Sampling",
    "SoftmaxMarginLoss",
    "SpanningTreeEntropyLoss",
    "SpanningTreeGeneralizedExpectationLoss",
    "SpanningTreeKLLoss",
    "SpanningTreeLoss",
    "SpanningTreeRiskLoss",
    "Strings",
    "TransducerCosts",
    "Trees",
    "crf_nll",
    "ctc_align",
    "ctc_nll",
    "ctc_risk",
    "ctc_softmax_margin",
    "function_of",
    "lattice_crf_nll",
    "lattice_entropy",
    "lattice_log_partition",
    "lattice_marginals",
    "lattice_risk",
    "lattice_softmax_margin",
    "linear_chain_nll",
    "module_of",
    "mrf_dense_marginals",
    "mrf_log_partition",
    "mrf_marginals",
    "mrf_nll",
    "nbest_risk",
    "nn",
    "risk",
    "softmax_margin",
    "spanning_tree_entropy",
    "spanning_tree_generalized_expectation",
    "spanning_tree_kl",
    "spanning_tree_log_partition",
    "spanning_tree_marginals",
    "spanning_tree_nll",
    "spanning_tree_partial_nll",
    "spanning_tree_risk",
    "use_device_paths",
]
