"""Minimum Bayes risk: the string with the least expected loss against strings of the model."""

from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from fstgrad.core.alphabet import SequenceLike
from fstgrad.core.checks import FloatArray, IntArray, Seed, generator, instance, positive_integer
from fstgrad.core.errors import (
    AlphabetError,
    InfeasibleError,
    InvalidInputError,
    MemoryLimitError,
    NotSupportedError,
    StateLimitError,
    warn,
)
from fstgrad.core.sequences import batch
from fstgrad.core.short_repr import short_repr
from fstgrad.core.uninitialized import empty
from fstgrad.losses import EditDistance, Loss
from fstgrad.strings.distribution import StringDistribution
from fstgrad.strings.lattices import Lattice

_STRINGS = 1000  # by default, up to this many are all compared, and summed or else sampled
_CANDIDATES = 50  # default number of candidates beyond that
_STATES = 5000  # most states of an automaton of a candidate
NO_FINITE_RISK = (
    "all candidates have an infinite expected loss, so that the first one is returned, the most "
    "probable one unless candidates are given; use a loss that is finite between the strings"
)


class Consensus(NamedTuple):
    """The candidate with the least expected loss.

    Attributes
    ----------
    ids : (l,) int64
        The string.
    risk : float
        Its expected loss in nats.
    candidates : C arrays of ids
        All strings that were compared.
    risks : (C,) float64
        Their expected losses in nats.
    standard_errors : (C,) float64
        The standard errors of `risks`; 0 if they are exact, nan if the risk is infinite.
    confidence : (l,) float64
        The posterior probability of each symbol of `ids`.  For a `StringDistribution`, that of the
        symbol at its position (nan if `ids` has another length); for a `Lattice`, that of
        strings whose best alignment with `ids` matches the symbol (of `samples` strings, if the
        lattice has more).
    method : {"exact", "sampled"}
        How `risks` were computed.
    """

    ids: IntArray
    risk: float
    candidates: tuple[IntArray, ...]
    risks: FloatArray
    standard_errors: FloatArray
    confidence: FloatArray
    method: Literal["exact", "sampled"]

    def __repr__(self) -> str:
        return short_repr(self)


def mbr(
    distribution: StringDistribution | Lattice,
    loss: Loss,
    candidates: Sequence[SequenceLike] | int | None = None,
    *,
    samples: int | None = None,
    rng: Seed = 0,
) -> Consensus:
    """Return the candidate y with the least expected loss E[L(y, Y)] under Y ~ p.

    Parameters
    ----------
    distribution : StringDistribution or Lattice
        The distribution p.
    loss : Loss
        L(candidate, Y) in nats; Y is the target.
    candidates : sequence of strings, or int, optional
        A number k means the k best strings of p.  By default all strings are compared if there are
        at most 1,000 (paths, for a lattice), so that none of them has a smaller expected loss, else
        the 50 best.
    samples : int, optional
        Draw so many strings from p, at least 2, for the expected losses, unless p has at most this
        many strings (paths, for a lattice).  By default the result is exact while that fits: all
        strings are used if there are at most 1,000, such as an n-best list (only those whose
        probability is 0 in float64, log p below -745, are left out); else each candidate is
        compiled by itself, with at most 5,000 states.  Beyond that, and for a loss without
        `Loss.converse`, 1,000 strings are drawn; `method` of the result says so.
    rng : Generator, int or None
        Source of the samples; the same seed gives the same result.

    Returns
    -------
    Consensus
        If all expected losses are infinite, that of the first candidate, the most probable one, and
        a `UserWarning` says so.

    Raises
    ------
    InvalidInputError
        There is no candidate, or an argument has the wrong type or range.
    StateLimitError
        The search for the best strings of a lattice is too long; give the candidates.
    AlphabetError
        A candidate has a symbol outside the alphabet, or a lattice has another alphabet.

    Notes
    -----
    E[L(y, Y)] is exact as the risk of the converse loss L'(Y, y), compiled against y.  With
    samples, it is the mean over the same strings for every candidate: O(samples x candidates)
    losses.

    References
    ----------
    Kumar, Byrne, "Minimum Bayes-Risk Decoding for Statistical Machine Translation" (2004).

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> p = fg.StringDistribution(np.log([[0.6, 0.4], [0.3, 0.7]]))
    >>> fg.mbr(p, fg.Hamming(fg.Alphabet("ab"))).ids.tolist()
    [0, 1]
    """
    found = least_risk(distribution, loss, candidates, samples, rng)
    if found.risk == np.inf:
        warn(NO_FINITE_RISK, UserWarning)
    return found


def least_risk(
    distribution: StringDistribution | Lattice,
    loss: Loss,
    candidates: Sequence[SequenceLike] | int | None = None,
    samples: int | None = None,
    rng: Seed = 0,
) -> Consensus:
    """Return the result of `mbr`, without a warning if all expected losses are infinite."""
    most = _STRINGS if samples is None else positive_integer("samples", samples, minimum=2)
    instance(
        "distribution", distribution, (StringDistribution, Lattice), "a distribution of strings"
    )
    instance("loss", loss, Loss, "a Loss")
    random = generator(rng)
    if candidates is None:
        number = _number_of_strings(distribution)
        candidates = number if number <= _STRINGS else _CANDIDATES
    if isinstance(candidates, int | np.integer):
        candidates = positive_integer("candidates", candidates)
        chosen = _best_strings(distribution, candidates)
    else:
        chosen = [
            loss.alphabet.encode(candidate, name=f"candidates[{i}]")
            for i, candidate in enumerate(batch("candidates", candidates))
        ]
    if not chosen:
        raise InvalidInputError("candidates is empty; give at least one string")
    if isinstance(distribution, Lattice) and loss.alphabet != distribution.alphabet:
        raise AlphabetError(
            f"loss is over {loss.alphabet!r}, the lattice over {distribution.alphabet!r}; make "
            "both with one Alphabet"
        )
    exact = None
    if samples is None and _number_of_strings(distribution) > most:
        exact = _compiled_risks(distribution, loss, chosen)
    if exact is not None and isinstance(distribution, StringDistribution):
        strings: list[IntArray] = []
        share, freedom = empty(0), np.inf
    else:
        strings, share, freedom = _representatives(distribution, most, random)
    if exact is not None:
        risks, errors = exact, np.where(np.isfinite(exact), 0.0, np.nan)
    else:
        table = loss.matrix(chosen, strings)
        risks = table @ share
        with np.errstate(invalid="ignore"):  # of infinite losses
            errors = np.sqrt((np.square(table - risks[:, None]) @ share) / freedom)
    best = int(np.argmin(risks))
    ids = chosen[best]
    return Consensus(
        ids,
        float(risks[best]),
        tuple(chosen),
        risks,
        errors,
        _confidence(distribution, ids)
        if isinstance(distribution, StringDistribution)
        else _matched(distribution, ids, strings, share),
        "exact" if exact is not None or np.isinf(freedom) else "sampled",
    )


def expected_losses(
    distribution: StringDistribution | Lattice, loss: Loss, candidates: list[IntArray]
) -> FloatArray:
    """Return E[L(y, Y)] (C,) of candidates y under Y ~ p: exact, or over 1,000 drawn strings.

    As `mbr` computes them by default, without what else it returns.
    """
    risks = _compiled_risks(distribution, loss, candidates)
    if risks is None:
        strings, share, _ = _representatives(distribution, _STRINGS, 0)
        risks = loss.matrix(candidates, strings) @ share
    return risks


def _best_strings(distribution: StringDistribution | Lattice, k: int) -> list[IntArray]:
    """Return the k best strings; the error of a search that is too long names `candidates`."""
    try:
        return [ids for ids, _ in distribution.kbest(k)]
    except StateLimitError as error:
        remedy = "Give candidates, such as distribution.sample(100, 0)."
        raise StateLimitError(
            error.states, error.limit, where=error.where, remedy=remedy
        ) from error


def _number_of_strings(distribution: StringDistribution | Lattice) -> int:
    """Return the number of strings of p, or of the paths of a lattice."""
    if isinstance(distribution, Lattice):
        return distribution.num_paths
    symbols: int = distribution.scores.shape[-1]
    return int(symbols**distribution.length)


def _compiled_risks(
    distribution: StringDistribution | Lattice, loss: Loss, candidates: list[IntArray]
) -> FloatArray | None:
    """Return the exact expected losses (C,); None if a candidate cannot be compiled."""
    risks = empty(len(candidates))
    try:
        converse = loss.converse()
        for i, ids in enumerate(candidates):
            try:
                if isinstance(distribution, Lattice):
                    compiled = distribution.compile(converse, ids, max_states=_STATES)
                    risks[i] = distribution.expected_loss(compiled)
                else:
                    length = distribution.length
                    b = converse.compile(ids, length, max_states=_STATES)
                    risks[i] = distribution.expected_loss(b)
            except InfeasibleError:  # no string has a finite loss against the candidate
                risks[i] = np.inf
    except (NotSupportedError, StateLimitError, MemoryLimitError):
        return None
    return risks


def _representatives(
    distribution: StringDistribution | Lattice, samples: int, rng: Seed
) -> tuple[list[IntArray], FloatArray, float]:
    """Return strings, their shares (sum 1), and the degrees of freedom (inf if p is exact)."""
    most = _number_of_strings(distribution)
    if most <= samples:
        every = [(ids, np.exp(log_prob)) for ids, log_prob in distribution.kbest(most)]
        found = [(ids, share) for ids, share in every if share > 0]
        return [ids for ids, _ in found], np.array([share for _, share in found]), np.inf
    drawn = Counter(tuple(y.tolist()) for y in distribution.sample(samples, rng))
    share = np.array(list(drawn.values())) / samples
    return [np.array(y, dtype=np.int64) for y in drawn], share, samples - 1.0


def _matched(
    lattice: Lattice, ids: IntArray, strings: list[IntArray], share: FloatArray
) -> FloatArray:
    """Return for each symbol (l,) the share of strings whose best alignment matches it."""
    distance, matched = EditDistance(lattice.alphabet), np.zeros(len(ids))
    for string, weight in zip(strings, share, strict=True):
        for operation in distance.align(ids, string).operations:
            if operation.kind == "match":
                matched[operation.y_place] += weight
    return matched


def _confidence(distribution: StringDistribution, ids: IntArray) -> FloatArray:
    """Return the probability (l,) of each symbol at its position; nan for another length."""
    if len(ids) != distribution.length:
        return np.full(len(ids), np.nan)
    marginals = distribution.marginals()
    at = marginals.reshape(len(ids), -1, marginals.shape[-1]).sum(axis=1)
    result: FloatArray = at[np.arange(len(ids)), ids]
    return result
