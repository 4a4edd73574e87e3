"""The reference engine: Grad-Rational and Grad-Tropical with the operations of OpenFst.

Line by line the algorithms of Cortes et al. 2018 (Figures 2a and 4a), for one target y_i:

1. M = Pi_1(Ybar o U o Y_i), the loss of every y in Delta^l          `hypothesis_machine`
2. Det(M): one path for each y                                        `determinized`
3. B: weights e^L, that is 1/u (rational) or e^u (tropical)           `loss_acceptor`
4. A: exp(w . Psi), from a table of scores (Figure 2d)                `score_transducer`
5. C = A o B, alpha and beta, Q from alpha(e) w(e) beta(e)            `gradient_terms`

The arc type of U says which: "standard" is the tropical semiring, "log64" that of probabilities.

Accuracy: all is float64 except for step 2, where OpenFst rounds residual weights to multiples of
`delta`, and the tropical steps 1 and 2, which are float32.  Measured against enumeration (l <= 5,
random scores): costs that are small multiples of a power of 2, 1e-14; random real costs, 4e-7
relative in log Z and 1e-7 in Q; rational losses, 2e-10.
"""

import warnings

from fstgrad.reference.determinization import determinized, merge_equivalent_states
from fstgrad.reference.gradient import forward_backward, gradient_terms, score_transducer
from fstgrad.reference.hypotheses import hypothesis_machine
from fstgrad.reference.loss import loss_acceptor

__all__ = [
    "determinized",
    "forward_backward",
    "gradient_terms",
    "hypothesis_machine",
    "loss_acceptor",
    "merge_equivalent_states",
    "score_transducer",
]


def __getattr__(name: str) -> object:
    if name != "with_merged_futures":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{name} was renamed merge_equivalent_states", DeprecationWarning, stacklevel=2)
    return merge_equivalent_states
