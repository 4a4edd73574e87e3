"""Objectives for a gold string that many latent strings collapse to (blanks, ends, runs)."""

import numpy.typing as npt

from fstgrad.core.checks import FloatArray, instance
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.strings.distribution import StringDistribution
from fstgrad.strings.solve import solve


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
    augmented = StringDistribution(scores, b).near
    observed = StringDistribution(augmented.scores, gold)
    log_z, terms = solve(augmented.scores, augmented.automaton)
    log_gold, gold_terms = solve(observed.scores, observed.automaton)
    terms -= gold_terms
    return log_z - log_gold, terms
