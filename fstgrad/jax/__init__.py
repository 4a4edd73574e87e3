"""Objectives of fstgrad as JAX functions, on the CPU, under jit, grad and vmap.

Each function returns one value per item of a batch, in nats and in the dtype of the scores (half
precision: float32); compute the mean or the sum as required.  The passes are those of the functions
on arrays, called by `jax.pure_callback`; the gradients are exact.  Log Z, likelihoods and softmax
margins are twice differentiable in reverse mode; a second derivative that does not exist is an
error.

Gold and other constants whose values are known are checked immediately, also while jit traces.

Index
-----
- strings : `softmax_margin`, `risk`, `crf_nll`.
- alignments with blanks : `ctc_nll`, `ctc_softmax_margin`, `ctc_risk`; `ctc_align`, `CTCAlignment`.
- chains : `linear_chain_nll`.
- n-best lists : `nbest_risk`.
- lattices : `lattice_log_partition`, `lattice_marginals`, `lattice_entropy`,
  `lattice_softmax_margin`, `lattice_risk`, `lattice_crf_nll`.
- trees : `spanning_tree_log_partition`, `spanning_tree_marginals`, `spanning_tree_nll`,
  `spanning_tree_partial_nll`, `spanning_tree_entropy`, `spanning_tree_kl`, `spanning_tree_risk`,
  `spanning_tree_generalized_expectation`.
- Markov random fields : `mrf_nll`, `mrf_log_partition`, `mrf_marginals`,
  `mrf_dense_marginals`.
- predictions : `Strings`, `LatticeStrings`, `CRF`, `Trees`, `RandomFields`.
- estimates : `Sampling`, `Estimate`.
- objectives of your own : `function_of`.

Reading order
-------------
- `operators`, `arguments` : the callback with exact gradients; checks.
- `strings`, `lattices`, `trees`, `mrf`, `mrf_dense` : the objectives.
- `predictions`, `crf`, `ctc` : distributions, and the objectives of linear chains and of paths with
  blanks.
"""

from fstgrad.jax.crf import CRF, linear_chain_nll
from fstgrad.jax.ctc import CTCAlignment, ctc_align, ctc_nll, ctc_risk, ctc_softmax_margin
from fstgrad.jax.lattices import (
    lattice_crf_nll,
    lattice_entropy,
    lattice_log_partition,
    lattice_marginals,
    lattice_risk,
    lattice_softmax_margin,
)
from fstgrad.jax.mrf import mrf_log_partition, mrf_marginals, mrf_nll
from fstgrad.jax.mrf_dense import mrf_dense_marginals
from fstgrad.jax.operators import function_of
from fstgrad.jax.predictions import LatticeStrings, RandomFields, Strings, Trees
from fstgrad.jax.strings import crf_nll, nbest_risk, risk, softmax_margin
from fstgrad.jax.trees import (
    spanning_tree_entropy,
    spanning_tree_generalized_expectation,
    spanning_tree_kl,
    spanning_tree_log_partition,
    spanning_tree_marginals,
    spanning_tree_nll,
    spanning_tree_partial_nll,
    spanning_tree_risk,
)
from fstgrad.objectives.sampling import Estimate, Sampling

__all__ = [
    "CRF",
    "CTCAlignment",
    "Estimate",
    "LatticeStrings",
    "RandomFields",
    "Sampling",
    "Strings",
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
    "mrf_dense_marginals",
    "mrf_log_partition",
    "mrf_marginals",
    "mrf_nll",
    "nbest_risk",
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
]
