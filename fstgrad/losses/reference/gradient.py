"""Build A and C = A o B; compute the gradient terms Q from forward and backward distances."""

import numpy as np

from fstgrad import openfst
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.losses.reference.target_machine import EXACT
from fstgrad.openfst import Fst, FstArrays


def score_transducer(scores: FloatArray, alphabet: Alphabet) -> Fst:
    """Return A: y has the weight exp(w . Psi(y)) = exp(sum_s scores[s, ..., y[s]]).

    A state is a pair (position, the q - 1 symbols before it).  The arc of position s, context c and
    symbol z has the cost -scores[s, c, z].  It writes z and reads the index of its entry in
    `scores`, plus 1, so that each arc of a composition identifies its gradient term.  Projected to
    its output side, A is the acceptor of Figure 2d of Cortes et al. 2018.  Entries of -inf have no
    arc.  O(l n^q) states and arcs, "log64".

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), (l, n+1, n+1, n), ... float64
        Log-weights in nats; index n of a context axis means "before the start".
    alphabet : Alphabet
        n symbols.

    Raises
    ------
    InvalidInputError
        `scores` has another shape.
    """
    length, symbols, order = len(scores), len(alphabet), scores.ndim - 1
    if order < 1 or scores.shape[1:] != (symbols + 1,) * (order - 1) + (symbols,):
        raise InvalidInputError(
            f"scores has shape {scores.shape}; for {symbols} symbols give (l, {symbols}), "
            f"(l, {symbols + 1}, {symbols}) and so on, one axis for each symbol of context"
        )
    contexts = (symbols + 1) ** (order - 1)
    entry = np.flatnonzero(scores.ravel() > -np.inf)
    position, context, symbol = np.unravel_index(entry, (length, contexts, symbols))
    following = (context * (symbols + 1) + symbol) % contexts
    return openfst.connect(
        openfst.from_arrays(
            FstArrays(
                arc_type="log64",
                start=contexts - 1,  # every symbol of the context is "before the start"
                final=np.repeat([np.inf, 0.0], [length * contexts, contexts]),
                source=position * contexts + context,
                ilabel=entry + 1,
                olabel=symbol + 1,
                nextstate=(position + 1) * contexts + following,
                weight=-scores.ravel()[entry],
            )
        )
    )


def forward_backward(machine: Fst) -> tuple[FloatArray, FloatArray]:
    """Return (alpha, beta) as costs: the distances from the start and to the end, each (S,).

    In "log64", without rounding to a grid: alpha[p] = -log of the sum of the weights of all paths
    from the start to p; beta[p] = -log of this sum for the paths from p to the end.  O(states +
    arcs) for an acyclic machine.
    """
    alpha = openfst.shortest_distance(machine, delta=EXACT)
    return alpha, openfst.shortest_distance(machine, delta=EXACT, reverse=True)


def gradient_terms(scores: FloatArray, loss: Fst, alphabet: Alphabet) -> tuple[float, FloatArray]:
    """Return (log Z, Q): Z = sum_y exp(L(y) + w . Psi(y)), and the gradient terms Q_w(z, s).

    These are the steps of Grad-Rational and Grad-Tropical after B.  Q has the shape of `scores`.
    For the arcs e of C = A o B that belong to the entry (s, z) of `scores`,

        Q_w(z, s) = sum_e alpha(source of e) w(e) beta(next state of e) / Z.

    Parameters
    ----------
    scores : array
        As in `score_transducer`.
    loss : pynini.Fst
        B, as `loss_acceptor` returns it.
    alphabet : Alphabet

    Raises
    ------
    InfeasibleError
        Z = 0: each y has an infinite loss or a score of -inf.
    InvalidInputError
        `scores` has another shape.
    """
    joint = openfst.compose(score_transducer(scores, alphabet), loss)
    if openfst.is_empty(joint):
        raise InfeasibleError(
            "Z = 0: each hypothesis has an infinite loss or a score of -inf; allow more scores, or "
            "give the loss smoothing > 0 or a cap"
        )
    alpha, beta = forward_backward(joint)
    arcs = openfst.to_arrays(joint)
    log_z = -float(beta[arcs.start])
    share = np.exp(-(alpha[arcs.source] + arcs.weight + beta[arcs.nextstate]) - log_z)
    terms = np.zeros(scores.size)
    np.add.at(terms, arcs.ilabel - 1, share)
    return log_z, terms.reshape(scores.shape)
