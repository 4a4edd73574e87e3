"""Objectives of training on strings, each with its exact gradient in the scores.

The type of the first argument decides: an array of scores of Delta^l, or a lattice.
"""

from typing import Literal, overload

import numpy.typing as npt

from fstgrad.core.alphabet import SequenceLike
from fstgrad.core.checks import FloatArray, one_of
from fstgrad.core.distribution import FAR
from fstgrad.core.errors import InvalidInputError
from fstgrad.losses import Loss, Target
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.reference import gradient_terms
from fstgrad.strings.distribution import StringDistribution
from fstgrad.strings.lattices import Lattice, LatticeLoss
from fstgrad.strings.lattices.objectives import lattice_risk, lattice_softmax_margin
from fstgrad.strings.solve import score_table, solve
from fstgrad.strings.tangents import tangent

_NOT_COMPILED = "b is a {}; scores of Delta^l need loss.compile(target, length)"
_MADE_FOR_ONE_LENGTH = (
    "b is a LossAutomaton, made for hypotheses of one length; a lattice needs the loss itself, or "
    "lattice.compile(loss, target)"
)


@overload
def softmax_margin(
    scores: Lattice, gold: SequenceLike, b: Loss | LatticeLoss | None = None
) -> tuple[float, FloatArray]: ...


@overload
def softmax_margin(
    scores: npt.ArrayLike,
    gold: SequenceLike,
    b: LossAutomaton | None = None,
    *,
    engine: Literal["layered", "openfst"] = "layered",
) -> tuple[float, FloatArray]: ...


def softmax_margin(
    scores: npt.ArrayLike | Lattice,
    gold: SequenceLike,
    b: LossAutomaton | Loss | LatticeLoss | None = None,
    *,
    engine: Literal["layered", "openfst"] = "layered",
) -> tuple[float, FloatArray]:
    """Return F(scores) and dF/dscores of the softmax margin (Eq. 1 of Cortes et al. 2018).

    F = log sum_y exp(L(y) + w.Psi(y) - w.Psi(gold)) in nats, and dF/dscores = Q - t(gold), where Q
    are the marginals under exp(L(y) + w.Psi(y)) / Z.  Without an automaton L = 0, and F is the
    negative log-likelihood of a conditional random field.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, or a Lattice
        Log-weights in nats, as in `StringDistribution`; -inf forbids.  For a lattice of A arcs, y
        runs over its paths, and w.Psi(gold) is the log of the sum over the paths that read `gold`.
    gold : sequence of length l, or a string of the lattice
        The target y_i.
    b : LossAutomaton, optional
        The loss against the target, in nats.  For a lattice, a `Loss` (against `gold`), or the
        result of `Lattice.compile` (against any target).
    engine : {"layered", "openfst"}
        "openfst" composes A o B and runs both passes in OpenFst: the reference, far slower.  Not
        for lattices.

    Returns
    -------
    value : float
        F in nats.
    gradient : float64 array like the scores; (A,) for a lattice

    Raises
    ------
    InfeasibleError
        The gold string has a score of -inf, or no string has a finite score and loss.
    InvalidInputError
        A score is NaN, +inf or above 1e300, shapes or lengths do not match, or `b` is of the wrong
        type.

    Notes
    -----
    Cost: that of log Z and the marginals, O(sum_t S_t n^q) for S_t states of B in level t.

    Examples
    --------
    >>> import numpy as np
    >>> value, gradient = softmax_margin(np.zeros((3, 2)), np.array([0, 1, 1]))
    >>> print(round(value / np.log(2), 12), gradient[0].tolist())
    3.0 [-0.5, 0.5]
    """
    if isinstance(scores, Lattice):
        if isinstance(b, LossAutomaton):
            raise InvalidInputError(_MADE_FOR_ONE_LENGTH)
        return lattice_softmax_margin(scores, gold, b)
    if isinstance(b, Loss | LatticeLoss):
        raise InvalidInputError(_NOT_COMPILED.format(type(b).__name__))
    distribution = StringDistribution(scores, b)
    if one_of("engine", engine, ("layered", "openfst")) == "layered":
        index, score = distribution.gold(gold)
        weighed = score_table(distribution.scores)
        if weighed.farthest > FAR:
            distribution = distribution.near
            index, score = distribution.gold(gold)
            weighed = score_table(distribution.scores)
        log_z, terms = solve(distribution.scores, distribution.automaton, weighed)
    else:
        distribution = distribution.near
        index, score = distribution.gold(gold)
        automaton = distribution.automaton
        log_z, terms = gradient_terms(distribution.scores, automaton.to_fst(), automaton.alphabet)
    terms.flat[index] -= 1.0
    return log_z - score, terms


@overload
def risk(
    scores: Lattice, b: Target | LatticeLoss, loss: Loss | None = None
) -> tuple[float, FloatArray]: ...


@overload
def risk(scores: npt.ArrayLike, b: LossAutomaton) -> tuple[float, FloatArray]: ...


def risk(
    scores: npt.ArrayLike | Lattice,
    b: LossAutomaton | Target | LatticeLoss,
    loss: Loss | None = None,
) -> tuple[float, FloatArray]:
    """Return E[L(y)] under exp(w.Psi(y)) / Z and its gradient in the scores, both exact.

    The gradient is Cov[L, t], the derivative of the marginals along the loss (first-order
    expectation semiring).  Strings with L = +inf are left out of every sum.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, or a Lattice
        Log-weights in nats; -inf forbids.  For a lattice of A arcs, y runs over its paths.
    b : LossAutomaton
        The loss against the target, in nats.  For a lattice, the target (a sequence, or an acyclic
        acceptor of several targets), or the result of `Lattice.compile`.
    loss : Loss, optional
        The loss; needed, and used, only if `b` is a target.

    Returns
    -------
    value : float
        E[L] in nats.
    gradient : float64 array like the scores; (A,) for a lattice

    Raises
    ------
    InfeasibleError
        No string has a finite score and a finite loss.
    InvalidInputError
        A score is NaN, +inf or above 1e300, shapes or lengths do not match, or `b` is of the wrong
        type.

    Notes
    -----
    Cost: about twice that of log Z and the marginals.

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> b = fg.Hamming(fg.Alphabet("ab")).compile("ab")
    >>> risk(np.zeros((2, 2)), b)[0]
    1.0
    """
    if isinstance(scores, Lattice):
        if isinstance(b, LossAutomaton):
            raise InvalidInputError(_MADE_FOR_ONE_LENGTH)
        return lattice_risk(scores, b, loss)
    if not isinstance(b, LossAutomaton):
        raise InvalidInputError(_NOT_COMPILED.format(type(b).__name__))
    distribution = StringDistribution(scores, b)
    solved = tangent(distribution.scores, b, scale=0, slope=1)
    return solved.slope, solved.change
