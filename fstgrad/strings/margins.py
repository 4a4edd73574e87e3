"""Objectives other than the softmax margin: structured hinge, RAML, direct loss minimization.

Their arguments are those of `softmax_margin`: scores and the automaton of a loss, or a lattice and
a loss compiled by `Lattice.compile`.
"""

from typing import overload

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import SequenceLike
from fstgrad.core.checks import FloatArray, divisor
from fstgrad.core.errors import InvalidInputError
from fstgrad.losses import Loss
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.strings.distribution import StringDistribution
from fstgrad.strings.lattices import Lattice, LatticeLoss
from fstgrad.strings.lattices.objectives import lattice_direct_loss, lattice_hinge, lattice_raml


@overload
def hinge(
    scores: Lattice, gold: SequenceLike, b: Loss | LatticeLoss
) -> tuple[float, FloatArray]: ...


@overload
def hinge(
    scores: npt.ArrayLike, gold: SequenceLike, b: LossAutomaton
) -> tuple[float, FloatArray]: ...


def hinge(
    scores: npt.ArrayLike | Lattice, gold: SequenceLike, b: LossAutomaton | Loss | LatticeLoss
) -> tuple[float, FloatArray]:
    """Return the structured hinge loss and a subgradient in the scores.

    The value is max_y (L(y) + w.Psi(y)) - w.Psi(gold) in nats: the margin-rescaled loss of M3N and
    SVMstruct.  It is the softmax margin at temperature 0 and, like it, an upper bound on the loss
    of the mode.  The subgradient is t(y*) - t(gold) for a maximizer y*; among equals y* has the
    smaller ids.  Both are exact, by the max-plus pass.  Slack rescaling is not supported: its
    maximum of products is not a path of A o B.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, or a Lattice
        Log-weights in nats, as in `StringDistribution`.  For a lattice of A arcs, y runs over its
        paths, and w.Psi(gold) is the score of the best path that reads `gold`.
    gold : sequence of length l, or a string of the lattice
    b : LossAutomaton
        The loss against `gold`, in nats.  For a lattice, a `Loss` or a `LatticeLoss`.

    Returns
    -------
    value : float
        The hinge loss in nats.
    subgradient : float64 array like the scores; (A,) for a lattice

    Raises
    ------
    InfeasibleError
        The gold string has a score of -inf, or no string has a finite score and loss.
    InvalidInputError
        Scores are not log-weights, shapes or lengths do not match, or `b` is of the wrong type.

    References
    ----------
    Taskar, Guestrin, Koller (2003); Tsochantaridis, Joachims, Hofmann, Altun (2005), Eq. 10.

    Examples
    --------
    >>> import fstgrad as fg
    >>> b = fg.Hamming(fg.Alphabet("ab")).compile("ab")
    >>> hinge([[0.5, 0.0], [0.0, 0.0]], "ab", b)[0]  # "ba": 2 + 0 - 0.5
    1.5
    """
    if isinstance(scores, Lattice):
        return lattice_hinge(scores, gold, _of_lattice(b))
    b = _of_strings(b)
    distribution = StringDistribution(scores, b).near
    index, gold_score = distribution.gold(gold)
    best = distribution.mode()
    own, score = distribution.gold(best)
    table = np.zeros(distribution.scores.shape)
    table.flat[own] += 1.0
    table.flat[index] -= 1.0
    return score + b.loss(best) - gold_score, table


def raml(
    scores: npt.ArrayLike | Lattice, b: LossAutomaton | LatticeLoss, temperature: float = 1.0
) -> tuple[float, FloatArray]:
    """Return the objective of reward-augmented maximum likelihood and its gradient.

    The cross-entropy -E_r[log p(y)] in nats of p(y) = exp(w.Psi(y)) / Z under the target
    distribution r(y) = e^{-L(y)/temperature} / sum_y' e^{-L(y')/temperature}.  Its gradient is
    E_p[t] - E_r[t].  Exact; strings with L = +inf have r = 0.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, or a Lattice
        Log-weights in nats.  For a lattice of A arcs, p and r are distributions over its paths.
    b : LossAutomaton, or a LatticeLoss for a lattice
        The loss L against the target, in nats.
    temperature : float
        In nats, at least 1e-150.  As it goes to 0, r concentrates on the strings with the least
        loss.

    Returns
    -------
    value : float
        The cross-entropy in nats; +inf if the scores forbid a string with r > 0.
    gradient : float64 array like the scores; (A,) for a lattice

    Raises
    ------
    InfeasibleError
        No string has a finite score, or no string has a finite loss.
    InvalidInputError
        The temperature is below 1e-150, shapes do not match, or `b` is of the wrong type.

    References
    ----------
    Norouzi, Bengio, Chen, Jaitly, Schuster, Wu, Schuurmans (2016), Eq. 7 and 8.

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> b = fg.Hamming(fg.Alphabet("ab")).compile("ab")
    >>> value, gradient = raml(np.zeros((2, 2)), b)
    >>> print(round(value / np.log(2), 12))  # all four strings have p = 1/4
    2.0
    """
    temperature = divisor("temperature", temperature)
    if isinstance(scores, Lattice):
        return lattice_raml(scores, _compiled(b), temperature)
    b = _of_strings(b)
    model = StringDistribution(scores, None).near
    reward = StringDistribution(np.zeros(model.scores.shape), b.scaled(-1.0 / temperature))
    weights = reward.marginals()
    return model.log_partition() - model.inner(weights, model.scores), model.marginals() - weights


def direct_loss(
    scores: npt.ArrayLike | Lattice, b: LossAutomaton | LatticeLoss, epsilon: float = 1.0
) -> tuple[float, FloatArray]:
    """Return the loss of the mode and the update direction of direct loss minimization.

    The loss is L(y_w) for y_w = argmax w.Psi(y).  The direction is (t(y_direct) - t(y_w)) / epsilon
    for y_direct = argmax (w.Psi(y) + epsilon L(y)).  Its mean over training pairs tends to the
    gradient of the expected loss as epsilon goes to 0.  For one pair the direction is not a
    derivative of the value, because the loss is piecewise constant in the scores.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, or a Lattice
        Log-weights in nats.  For a lattice of A arcs, y runs over the paths with a finite loss.
    b : LossAutomaton, or a LatticeLoss for a lattice
        The loss L against the target, in nats.
    epsilon : float
        Weight of the loss in y_direct, at least 1e-150: the update moves away from strings of
        higher loss.

    Returns
    -------
    value : float
        L(y_w) in nats; +inf if the automaton has no path for y_w.
    direction : float64 array like the scores; (A,) for a lattice

    Raises
    ------
    InfeasibleError
        No string has a finite score and a finite loss.
    InvalidInputError
        Epsilon is below 1e-150, shapes do not match, or `b` is of the wrong type.

    References
    ----------
    McAllester, Hazan, Keshet (2010), Theorem 1.
    """
    epsilon = divisor("epsilon", epsilon)
    if isinstance(scores, Lattice):
        return lattice_direct_loss(scores, _compiled(b), epsilon)
    b = _of_strings(b)
    model = StringDistribution(scores, None)
    best, worse = model.mode(), StringDistribution(scores, b.scaled(epsilon)).mode()
    table = (model.parts(worse) - model.parts(best)) / epsilon
    return b.loss(best), table


def _of_strings(b: object) -> LossAutomaton:
    if isinstance(b, LossAutomaton):
        return b
    raise InvalidInputError(
        f"b is a {type(b).__name__}; scores of Delta^l need loss.compile(target, length)"
    )


def _of_lattice(b: object) -> Loss | LatticeLoss:
    return b if isinstance(b, Loss) else _compiled(b)


def _compiled(b: object) -> LatticeLoss:
    if isinstance(b, LatticeLoss):
        return b
    raise InvalidInputError(
        f"b is a {type(b).__name__}; a lattice needs lattice.compile(loss, target)"
    )
