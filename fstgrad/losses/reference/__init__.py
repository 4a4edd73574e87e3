"""The reference engine: Grad-Rational and Grad-Tropical with the operations of OpenFst.

It follows the algorithms of Cortes et al. 2018 (Figures 2a and 4a) line by line, for one target
y_i:

1. M = Pi_1(Ybar o U o Y_i), the loss of every y in Delta^l          `hypothesis_machine`
2. Det(M): one path per y                                             `determinized`
3. B: weights e^L, that is 1/u (rational) or e^u (tropical)           `loss_acceptor`
4. A: exp(w . Psi), from a table of scores (Figure 2d)                `score_transducer`
5. C = A o B, alpha and beta, Q from alpha(e) w(e) beta(e)            `gradient_terms`

The arc type of U chooses the algorithm: "standard" (tropical semiring) is Grad-Tropical, "log64"
(probability semiring) is Grad-Rational.

Accuracy: all steps use float64, except step 2, in which OpenFst rounds residual weights to
multiples of `delta`, and the tropical steps 1 and 2, which use float32.  Errors measured against
enumeration (l <= 5, random scores): 1e-14 for costs that are small multiples of a power of 2; 4e-7
relative in log Z and 1e-7 in Q for random real costs; 2e-10 for rational losses.

Reading order
-------------
- `target_machine` : M.
- `state_bound`, `determinization` : a lower bound of the states of Det(M); Det(M).
- `loss`, `gradient` : B; A, C and Q.
"""

from fstgrad.losses.reference.determinization import determinized, merge_equivalent_states
from fstgrad.losses.reference.gradient import forward_backward, gradient_terms, score_transducer
from fstgrad.losses.reference.loss import loss_acceptor
from fstgrad.losses.reference.target_machine import hypothesis_machine

__all__ = [
    "determinized",
    "forward_backward",
    "gradient_terms",
    "hypothesis_machine",
    "loss_acceptor",
    "merge_equivalent_states",
    "score_transducer",
]
