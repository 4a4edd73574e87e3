"""Objectives of training, each with its exact gradient in the scores.

The type of the first argument of `softmax_margin` and `risk` decides: an array of scores of Delta^l
with the automaton of a loss, a lattice with a loss compiled by `Lattice.compile`, or another
distribution (trees, random fields) with a table of costs, whose own method of this name runs.

- `softmax_margin`, `risk` : F of Cortes et al. 2018, and the expected loss.
- `latent_softmax_margin` : F for a gold string of many latent strings (blanks, ends, runs).
- `hinge`, `raml`, `direct_loss` : structured hinge, reward-augmented maximum likelihood, direct
  loss minimization.
"""

from typing import Any, Literal, cast, overload

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import SequenceLike
from fstgrad.core.checks import FloatArray, direction_array, divisor, instance, one_of
from fstgrad.core.distribution import FAR, Distribution, Scalar, Table
from fstgrad.core.errors import InfeasibleError, InvalidInputError, NotSupportedError
from fstgrad.losses import Loss, Target
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.reference import gradient_terms
from fstgrad.openfst import Fst
from fstgrad.strings.distribution import StringDistribution
from fstgrad.strings.lattices import Lattice, LatticeLoss
from fstgrad.strings.lattices.objectives import (
    lattice_direct_loss,
    lattice_hinge,
    lattice_raml,
    lattice_risk,
    lattice_softmax_margin,
)
from fstgrad.strings.solve import score_table, solve
from fstgrad.strings.tangents import tangent

ENGINES = ("layered", "openfst")
_NO_ENGINE = "engine is {!r}, but only scores of Delta^l have engines; leave it out"
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
    scores: Distribution[Table], gold: Any, b: Table | None = None
) -> tuple[Scalar, Table]: ...


@overload
def softmax_margin(
    scores: npt.ArrayLike,
    gold: SequenceLike,
    b: LossAutomaton | None = None,
    *,
    engine: Literal["layered", "openfst"] = "layered",
) -> tuple[float, FloatArray]: ...


def softmax_margin(
    scores: npt.ArrayLike | Lattice | Distribution[Any],
    gold: Any,
    b: Any = None,
    *,
    engine: Literal["layered", "openfst"] = "layered",
) -> tuple[Scalar, Any]:
    """Return F(scores) and dF/dscores of the softmax margin (Eq. 1 of Cortes et al. 2018).

    F = log sum_y exp(L(y) + w.Psi(y) - w.Psi(gold)) in nats, and dF/dscores = Q - t(gold), where Q
    are the marginals under exp(L(y) + w.Psi(y)) / Z.  Without an automaton L = 0, and F is the
    negative log-likelihood of a conditional random field.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, a Lattice, or a distribution
        Log-weights in nats, as in `StringDistribution`; -inf forbids.  For a lattice of A arcs, y
        runs over its paths, and w.Psi(gold) is the log of the sum over the paths that read `gold`.
        For trees and random fields, a distribution with the scores: `SpanningTrees`,
        `ProjectiveTrees` or `PairwiseMRF`.
    gold : sequence of length l, or a string of the lattice; a tree or a labeling
        The target y_i.
    b : LossAutomaton, optional
        The loss against the target, in nats.  For a lattice, a `Loss` (against `gold`), or the
        result of `Lattice.compile` (against any target).  For a distribution, a table of costs like
        its scores, such as `hamming_costs(gold)`: L(y) is the sum of the costs of the parts of y.
    engine : {"layered", "openfst"}
        "openfst" composes A o B and runs both passes in OpenFst: the reference, far slower.  Only
        for scores of Delta^l.

    Returns
    -------
    value : float
        F in nats; an array for a batch of trees.
    gradient : float64 array like the scores; (A,) for a lattice; a table like those of a
        distribution

    Raises
    ------
    InfeasibleError
        The gold string has a score of -inf, or no string has a finite score and loss.
    InvalidInputError
        A score is NaN, +inf or above 1e300, shapes or lengths do not match, or `b` is of the wrong
        type.
    NotSupportedError
        The distribution has no softmax margin with a table of costs.

    Notes
    -----
    Cost: that of log Z and the marginals, O(sum_t S_t n^q) for S_t states of B in level t.

    Examples
    --------
    >>> import numpy as np
    >>> value, gradient = softmax_margin(np.zeros((3, 2)), np.array([0, 1, 1]))
    >>> print(round(value / np.log(2), 12), gradient[0].tolist())
    3.0 [-0.5, 0.5]

    >>> import fstgrad as fg
    >>> trees = fg.SpanningTrees(np.zeros((3, 3)), single_root=True)  # two trees
    >>> value, gradient = softmax_margin(trees, [0, 1], trees.hamming_costs([0, 1]))
    >>> bool(np.isclose(value, np.log(1 + np.exp(2))))  # one of them has two wrong heads
    True
    """
    if isinstance(scores, Lattice):
        if isinstance(b, LossAutomaton):
            raise InvalidInputError(_MADE_FOR_ONE_LENGTH)
        if b is not None:
            instance("b", b, Loss | LatticeLoss, "a Loss, or the result of Lattice.compile")
        return lattice_softmax_margin(scores, gold, b)
    if isinstance(scores, Distribution):
        if one_of("engine", engine, ENGINES) != "layered":
            raise InvalidInputError(_NO_ENGINE.format(engine))
        return scores.softmax_margin(gold, None if b is None else _cost_table(b))
    _has_objectives(scores)
    distribution = StringDistribution(scores, None if b is None else _of_strings(b))
    if one_of("engine", engine, ENGINES) == "layered":
        index, score = distribution.gold(gold)
        weighed = score_table(distribution.scores)
        if weighed.largest_offset > FAR:
            distribution = distribution.recentered
            index, score = distribution.gold(gold)
            weighed = score_table(distribution.scores)
        log_z, terms = solve(distribution.scores, distribution.automaton, weighed)
    else:
        distribution = distribution.recentered
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
def risk(scores: Distribution[Table], b: Table) -> tuple[Scalar, Table]: ...


@overload
def risk(scores: npt.ArrayLike, b: LossAutomaton) -> tuple[float, FloatArray]: ...


def risk(
    scores: npt.ArrayLike | Lattice | Distribution[Any],
    b: Any,
    loss: Loss | None = None,
) -> tuple[Scalar, Any]:
    """Return E[L(y)] under exp(w.Psi(y)) / Z and its gradient in the scores, both exact.

    The gradient is Cov[L, t], the derivative of the marginals along the loss (first-order
    expectation semiring).  Strings with L = +inf are left out of every sum.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64, a Lattice, or a distribution
        Log-weights in nats; -inf forbids.  For a lattice of A arcs, y runs over its paths.  For
        trees and random fields, a distribution with the scores: `SpanningTrees`,
        `ProjectiveTrees` or `PairwiseMRF`.
    b : LossAutomaton
        The loss against the target, in nats.  For a lattice, the target (a sequence, or an acyclic
        acceptor of several targets), or the result of `Lattice.compile`.  For a distribution, a
        table of costs like its scores, such as `hamming_costs(gold)`: L(y) is the sum of the costs
        of the parts of y.
    loss : Loss, optional
        The loss; needed, and used, only if `b` is a target.

    Returns
    -------
    value : float
        E[L] in nats; an array for a batch of trees.
    gradient : float64 array like the scores; (A,) for a lattice; a table like those of a
        distribution

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
    >>> trees = fg.SpanningTrees(np.zeros((3, 3)), single_root=True)
    >>> round(risk(trees, trees.hamming_costs([0, 1]))[0], 12)
    1.0
    """
    if isinstance(scores, Lattice):
        if isinstance(b, LossAutomaton):
            raise InvalidInputError(_MADE_FOR_ONE_LENGTH)
        if isinstance(loss, Loss) and not isinstance(b, Fst | LatticeLoss):
            b = loss.alphabet.encode(b, name="b")
        return lattice_risk(scores, b, loss)
    if isinstance(scores, Distribution):
        if loss is not None:
            raise InvalidInputError(
                f"loss is given, but a {type(scores).__name__} takes a table of costs; leave it out"
            )
        return scores.risk(_cost_table(b))
    _has_objectives(scores)
    b = _of_strings(b)
    distribution = StringDistribution(scores, b)
    if loss is not None:
        raise InvalidInputError("loss is given, but b is the loss compiled for a target; omit loss")
    solved = tangent(distribution.scores, b, scale=0, slope=1)
    return solved.slope, solved.change


def latent_softmax_margin(
    scores: npt.ArrayLike, gold: LossAutomaton, b: LossAutomaton | None = None
) -> tuple[float, FloatArray]:
    """Return F and dF/dscores for a gold string that many latent strings collapse to.

    F = log sum_z exp(L(z) + w.Psi(z)) - log sum over gold z of exp(w.Psi(z)) in nats, and
    dF/dscores = Q - Q_gold, the difference of the marginals of the two distributions.  Without `b`,
    L = 0 and F is the negative log-likelihood.  If in addition the scores are log-probabilities of
    each position and collapse="ctc", F is the loss of connectionist temporal classification.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64
        Log-weights of latent strings in nats, as in `StringDistribution`; -inf forbids.
    gold : LossAutomaton
        The automaton that accepts the latent strings of the gold string:
        `CollapsedLoss(ExactMatch(abc), ...).compile(y, l)`.
    b : LossAutomaton, optional
        The loss of latent strings in nats, with the same collapse and the same length l.

    Returns
    -------
    value : float
        F in nats.
    gradient : float64 array like the scores

    Raises
    ------
    InfeasibleError
        No latent string of the gold string has a finite score, or no latent string has a finite
        score and a finite loss.
    InvalidInputError
        `gold` is not an automaton, or shapes do not match.

    Notes
    -----
    Cost: `solve` once with `b` and once with `gold`.

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> abc = fg.Alphabet("ab_")
    >>> gold = fg.CollapsedLoss(fg.ExactMatch(abc), abc, collapse="ctc", blank="_").compile("a", 2)
    >>> value, gradient = latent_softmax_margin(np.zeros((2, 3)), gold)
    >>> float(round(np.exp(value), 12))  # 9 latent strings, of which aa, a_ and _a are gold
    3.0
    """
    instance("gold", gold, LossAutomaton, "a LossAutomaton")
    augmented = StringDistribution(scores, b).recentered
    observed = StringDistribution(augmented.scores, gold)
    log_z, terms = solve(augmented.scores, augmented.automaton)
    try:
        log_gold, gold_terms = solve(observed.scores, observed.automaton)
    except InfeasibleError as error:
        raise InfeasibleError(
            "gold has no latent string of finite score, so its probability is 0: allow more "
            "symbols in scores"
        ) from error
    terms -= gold_terms
    return log_z - log_gold, terms


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
    Taskar, Guestrin, Koller (2003); Tsochantaridis, Hofmann, Joachims, Altun (2004), section 3.

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
    distribution = StringDistribution(scores, b).recentered
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
    Norouzi, Bengio, Chen, Jaitly, Schuster, Wu, Schuurmans (2016), Eq. 7.

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
    model = StringDistribution(scores, None).recentered
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
    McAllester, Hazan, Keshet, "Direct Loss Minimization for Structured Prediction" (2010).
    """
    epsilon = divisor("epsilon", epsilon)
    if isinstance(scores, Lattice):
        return lattice_direct_loss(scores, _compiled(b), epsilon)
    b = _of_strings(b)
    model = StringDistribution(scores, None)
    best, worse = model.mode(), StringDistribution(scores, b.scaled(epsilon)).mode()
    table = (model.parts(worse) - model.parts(best)) / epsilon
    return b.loss(best), table


def _has_objectives(scores: object) -> None:
    """Raise NotSupportedError for a family that is no `Distribution`, such as `UndirectedTrees`."""
    if hasattr(scores, "log_partition"):
        raise NotSupportedError(
            f"{type(scores).__name__} has no softmax margin and no risk; SpanningTrees, "
            "ProjectiveTrees and PairwiseMRF have them"
        )


def _cost_table(b: Table) -> Table:
    """Return a table of costs, checked here, where errors call it `b`."""
    return b if isinstance(b, tuple) else cast(Table, direction_array("b", cast(Any, b)))


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
