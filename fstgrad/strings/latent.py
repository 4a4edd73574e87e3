"""Objectives whose gold string has many latent strings: alignments with blanks, ends, runs."""

import numpy.typing as npt

from fstgrad.automata.automaton import LossAutomaton
from fstgrad.checks import FloatArray, instance
from fstgrad.strings.distribution import StringDistribution
from fstgrad.strings.solve import solve


def latent_softmax_margin(
    scores: npt.ArrayLike, gold: LossAutomaton, b: LossAutomaton | None = None
) -> tuple[float, FloatArray]:
    """Return F and dF/dscores for a gold string that is the collapse of many latent strings.

    F = log sum_z exp(L(z) + w.Psi(z)) - log sum over gold z of exp(w.Psi(z)) in nats, and
    dF/dscores = Q - Q_gold, the marginals of the two distributions.  Without `b`, L = 0 and F is
    the negative log-likelihood: with scores that are log-probabilities of each position and
    collapse="ctc" that of connectionist temporal classification.

    Parameters
    ----------
    scores : (l, n), (l, n+1, n), ... float64
        Log-weights of latent strings in nats, as in `StringDistribution`.
    gold : LossAutomaton
        The latent strings of the gold string: `CollapsedLoss(ExactMatch(abc), ...).compile(y, l)`.
    b : LossAutomaton, optional
        The loss behind the same collapse, compiled for the same length.

    Raises
    ------
    InfeasibleError
        No latent string of the gold string has a finite score.

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
