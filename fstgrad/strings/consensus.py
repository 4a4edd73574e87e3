"""Minimum Bayes risk: the string with the least expected loss against strings of the model."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fstgrad.core.alphabet import SequenceLike
from fstgrad.core.checks import FloatArray, IntArray, Seed, instance, positive_integer
from fstgrad.core.errors import AlphabetError, InvalidInputError
from fstgrad.core.sequences import batch
from fstgrad.core.short_repr import short_repr
from fstgrad.losses import EditDistance, Loss
from fstgrad.strings.distribution import StringDistribution
from fstgrad.strings.lattices import Lattice

_CANDIDATES = 50  # default number of candidates


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
        strings whose best alignment with `ids` matches the symbol.
    """

    ids: IntArray
    risk: float
    candidates: tuple[IntArray, ...]
    risks: FloatArray
    standard_errors: FloatArray
    confidence: FloatArray

    def __repr__(self) -> str:
        return short_repr(self)


def mbr(
    distribution: StringDistribution | Lattice,
    loss: Loss,
    candidates: Sequence[SequenceLike] | int = _CANDIDATES,
    *,
    samples: int = 1000,
    rng: Seed = 0,
) -> Consensus:
    """Return the candidate y with the least expected loss E[L(y, Y)] under Y ~ p.

    Parameters
    ----------
    distribution : StringDistribution or Lattice
        The distribution p.
    loss : Loss
        L(candidate, Y) in nats; Y is the target.
    candidates : sequence of strings, or int
        A number k means the k best strings of p.
    samples : int
        Number of strings drawn from p, at least 2.  If p has at most this many strings (paths, for
        a lattice), such as an n-best list, all of them are used and the result is exact; only
        those whose probability is 0 in float64 (log p below -745) are left out.
    rng : Generator, int or None
        Source of the samples; the same seed gives the same result.

    Returns
    -------
    Consensus

    Raises
    ------
    InvalidInputError
        There is no candidate, or an argument has the wrong type or range.
    AlphabetError
        A candidate has a symbol outside the alphabet, or a lattice has another alphabet.

    Notes
    -----
    The expected loss of every candidate is the mean over the same samples.
    O(samples x candidates) losses.

    References
    ----------
    Kumar, Byrne (2004), Eq. 1.

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> p = fg.StringDistribution(np.log([[0.6, 0.4], [0.3, 0.7]]))
    >>> fg.mbr(p, fg.Hamming(fg.Alphabet("ab"))).ids.tolist()
    [0, 1]
    """
    samples = positive_integer("samples", samples, minimum=2)
    instance(
        "distribution", distribution, (StringDistribution, Lattice), "a distribution of strings"
    )
    instance("loss", loss, Loss, "a Loss")
    if isinstance(candidates, int | np.integer):
        candidates = positive_integer("candidates", candidates)
        chosen = [ids for ids, _ in distribution.kbest(candidates)]
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
    strings, share, freedom = _representatives(distribution, samples, rng)
    table = loss.matrix(chosen, strings)
    risks = table @ share
    best = int(np.argmin(risks))
    with np.errstate(invalid="ignore"):  # of infinite losses
        variance = np.square(table - risks[:, None]) @ share
    ids = chosen[best]
    return Consensus(
        ids,
        float(risks[best]),
        tuple(chosen),
        risks,
        np.sqrt(variance / freedom),
        _confidence(distribution, ids)
        if isinstance(distribution, StringDistribution)
        else _matched(distribution, ids, strings, share),
    )


def _representatives(
    distribution: StringDistribution | Lattice, samples: int, rng: Seed
) -> tuple[list[IntArray], FloatArray, float]:
    """Return strings, their shares (sum 1), and the degrees of freedom (inf if p is exact)."""
    if isinstance(distribution, Lattice):
        most = distribution.num_paths
    else:
        most = distribution.scores.shape[-1] ** distribution.length
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
