"""Minimum Bayes risk: the string that is nearest to all others, by their probabilities."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from fstgrad.alphabet import SequenceLike
from fstgrad.checks import FloatArray, IntArray, Seed, instance, items, positive_integer
from fstgrad.errors import InvalidInputError
from fstgrad.losses import Loss
from fstgrad.strings.distribution import StringDistribution
from fstgrad.summary import short_repr

_CANDIDATES = 50  # best strings among which is searched


class Consensus(NamedTuple):
    """The candidate of the least expected loss.

    ids : (l,) the string; risk : its expected loss in nats; candidates : all that were compared,
    with their expected losses `risks` (C,) and the standard errors of these, 0 where exact.
    confidence : (l,) the posterior probability of each symbol of `ids` at its place.
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
    distribution: StringDistribution,
    loss: Loss,
    candidates: Sequence[SequenceLike] | int = _CANDIDATES,
    *,
    samples: int = 1000,
    rng: Seed = 0,
) -> Consensus:
    """Return the candidate y of the least expected loss E[L(y, Y)] under Y ~ p.

    Parameters
    ----------
    distribution : StringDistribution
    loss : Loss
        L(candidate, Y): Y is the target.
    candidates : sequence of strings, or int
        Their number, if the best strings of p are taken.
    samples : int
        Strings that represent p.

    Notes
    -----
    The same samples are used for all candidates.  O(samples x candidates) losses.

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
    positive_integer("samples", samples, minimum=2)
    instance("distribution", distribution, StringDistribution, "a StringDistribution")
    instance("loss", loss, Loss, "a Loss")
    if isinstance(candidates, int):
        positive_integer("candidates", candidates)
        chosen = [ids for ids, _ in distribution.kbest(candidates)]
    else:
        chosen = [
            loss.alphabet.encode(candidate, name=f"candidates[{i}]")
            for i, candidate in enumerate(items("candidates", candidates))
        ]
    if not chosen:
        raise InvalidInputError("candidates is empty; give at least one string")
    strings, number = np.unique(distribution.sample(samples, rng), axis=0, return_counts=True)
    table = loss.matrix(chosen, list(strings))
    share = number / samples
    risks = table @ share
    variance = np.square(table - risks[:, None]) @ share
    best = int(np.argmin(risks))
    ids = chosen[best]
    return Consensus(
        ids,
        float(risks[best]),
        tuple(chosen),
        risks,
        np.sqrt(variance / (samples - 1)),
        _confidence(distribution, ids),
    )


def _confidence(distribution: StringDistribution, ids: IntArray) -> FloatArray:
    """Return the probability (l,) of each symbol at its place; nan for another length."""
    if len(ids) != distribution.length:
        return np.full(len(ids), np.nan)
    marginals = distribution.marginals()
    at = marginals.reshape(len(ids), -1, marginals.shape[-1]).sum(axis=1)
    result: FloatArray = at[np.arange(len(ids)), ids]
    return result
