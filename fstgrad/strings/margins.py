"""Objectives beside the softmax margin: the structured hinge, RAML, direct loss minimization.

All take the same scores and the same automaton of the loss as `softmax_margin`; or a lattice, and a
loss compiled by `Lattice.compile`.
"""

from typing import overload

import numpy as np
import numpy.typing as npt

from fstgrad.alphabet import SequenceLike
from fstgrad.automata.automaton import LossAutomaton
from fstgrad.checks import FloatArray, positive_number
from fstgrad.errors import InvalidInputError
from fstgrad.lattices import Lattice, LatticeLoss
from fstgrad.lattices.objectives import lattice_direct_loss, lattice_hinge, lattice_raml
from fstgrad.losses import Loss
from fstgrad.strings.distribution import StringDistribution


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

    max_y (L(y) + w.Psi(y)) - w.Psi(gold) in nats: the margin-rescaled loss of M3N and SVMstruct,
    the softmax margin at temperature 0, and like it an upper bound of the loss of the mode.  A
    subgradient is t(y*) - t(gold) for a best y*; ties go to the smaller ids.  Exact, by the
    max-plus pass.  Slack rescaling is not offered: its maximum of products is not a path of A o B.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, or a Lattice
        Log-weights in nats, as in `StringDistribution`.  With a lattice y runs over its paths, gold
        counts by its best path, and the subgradient is (A,).
    gold : sequence of length l, or a string of the lattice
    b : LossAutomaton
        The loss against `gold`.  With a lattice a loss, or one that `Lattice.compile` compiled.

    Raises
    ------
    InfeasibleError
        The gold string has a score of -inf, or no string has a finite score and loss.

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
    places, gold_score = distribution.gold(gold)
    best = distribution.mode()
    own, score = distribution.gold(best)
    table = np.zeros(distribution.scores.shape)
    table.flat[own] += 1.0
    table.flat[places] -= 1.0
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
        Log-weights in nats.  With a lattice p and r are distributions over its paths, and the
        gradient is (A,).
    b : LossAutomaton, or a LatticeLoss with a lattice
        The loss against the target.
    temperature : float, nats
        At 0 it would be the likelihood of the strings of the least loss.

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
    temperature = positive_number("temperature", temperature)
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
    """Return the loss of the mode and the direction of direct loss minimization.

    L(y_w) with y_w = argmax w.Psi(y), and (t(y_direct) - t(y_w)) / epsilon with
    y_direct = argmax (w.Psi(y) + epsilon L(y)), whose mean over pairs tends to the gradient of the
    expected loss as epsilon goes to 0.  The loss itself is piecewise constant in the scores: this
    is not a derivative of the value of one pair.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, or a Lattice
        With a lattice y runs over the paths of a finite loss.
    b : LossAutomaton, or a LatticeLoss with a lattice
    epsilon : float
        Above 0: away from worse strings.

    References
    ----------
    McAllester, Hazan, Keshet (2010), Theorem 1.
    """
    epsilon = positive_number("epsilon", epsilon)
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
