"""Bands: alignments with a bounded offset (target symbols read minus symbols of y read).

A band keeps only some paths of M, so its loss satisfies L_k >= L, and its automaton is small even
if that of L is exponential.  Hence log Z <= log Z_k, and strings drawn from p e^{L_k} have weights
e^{L - L_k} in (0, 1].  `fg.sampled_softmax_margin` draws from this distribution.
"""

from dataclasses import replace

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import BoolArray, IntArray, is_integer
from fstgrad.core.errors import InfeasibleError, InvalidInputError, NotSupportedError
from fstgrad.losses.automata.automaton import DEAD, LossAutomaton
from fstgrad.losses.automata.caps import in_nats
from fstgrad.losses.automata.determinize import RawAutomaton, determinize, minimize
from fstgrad.losses.automata.machine import PAST_THE_END, Arcs, TargetMachine
from fstgrad.losses.automata.semiring import INF

Band = int | tuple[int, int]
_BEYOND = 2**31  # more symbols than any string has
BAND_AND_CAP = "band excludes cap, as min(L_k, cap) bounds nothing; leave one of them out"


def check_band(band: Band) -> Band:
    """Return a band as integers: a width k >= 0, or the least and the greatest offset.

    Numbers beyond all lengths are clipped to +-2^31, so that int64 sums do not overflow.

    Raises
    ------
    InvalidInputError
        `band` is neither a width nor a pair.
    """
    if isinstance(band, tuple):
        if len(band) == 2 and all(is_integer(end) for end in band) and band[0] <= band[1]:
            return _clipped(band[0]), _clipped(band[1])
    elif is_integer(band) and band >= 0:
        return _clipped(band)
    raise InvalidInputError(
        f"band is {band!r}; give a width k >= 0, or a pair (least, greatest) of the offset of the "
        "target against y"
    )


def compile_band(
    alphabet: Alphabet, machine: TargetMachine, length: int, band: Band, max_states: int
) -> LossAutomaton:
    """Return B of L_k, the least cost of the alignments in a band.

    Raises
    ------
    InvalidInputError
        `band` is neither a width nor a pair.
    NotSupportedError
        The loss sums over paths, so that a band bounds nothing.
    StateLimitError
        B would have more than `max_states` states.
    InfeasibleError
        The band has no alignment of this length, or none of some string whose loss is finite.
    """
    read = np.arange(length, -1, -1)
    places = np.stack([read, read], axis=1)
    barred = barred_cells(machine, check_band(band), places, places[0])
    try:
        raw = minimize(determinize(machine, length, max_states=max_states, barred=barred))
    except InfeasibleError:
        raw = None
    if raw is None or any((level.nextstate == DEAD).any() for level in raw.levels):
        whole = determinize(machine.support(), length, max_states=max_states)
        strings = 0 if raw is None else _num_strings(raw, machine.class_of)
        if raw is None or strings < _num_strings(whole, machine.class_of):
            raise band_too_narrow(band)
    return replace(in_nats(alphabet, machine.class_of, raw, machine.unit, None), band=band)


def band_too_narrow(band: Band) -> InfeasibleError:
    """Return the error for a band without alignments of some strings of finite loss."""
    return InfeasibleError(
        f"band {band} leaves out strings whose loss is finite, so that it bounds nothing; give a "
        "wider band, or leave it out (a pair contains 0 and the length of the target minus that of "
        "y: the offsets at which alignments start and end)"
    )


def barred_cells(
    machine: TargetMachine, band: Band, read: IntArray, lengths: IntArray
) -> BoolArray:
    """Return (N, K) bool: the states of M outside a band, at N places of the hypotheses.

    `read` (N, 2) is the least and the greatest number of symbols read at a place, and `lengths`
    (2,) the least and the greatest length of a hypothesis.  A width k keeps the offsets of all
    alignments of lengths l and m that leave the diagonal by at most k: from min(0, m - l) - k to
    max(0, m - l) + k.  States that wait at cost 0 (before and after a local alignment) are in every
    band.  If the band excludes all cells where alignments start, or all where they end, it bars
    every cell there.

    Raises
    ------
    NotSupportedError
        The machine has no `place`: the loss sums over paths.
    """
    if machine.place is None:
        raise NotSupportedError(
            "a band bounds the alignments of a tropical loss, and this loss sums over paths; "
            "leave band= out"
        )
    low, high = _offsets(machine.place, lengths, band)
    least, most = (ends[:, None, None] for ends in read.T)
    below = machine.place[None, :, :, 1] - least < low
    above = machine.place[None, :, :, 0] - most > high
    barred: BoolArray = np.logical_or.reduce(below | above, axis=2)
    epsilon = machine.epsilon
    starts = _outside_epsilons(machine.initial, epsilon.source, epsilon)
    ends = _outside_epsilons(machine.final, epsilon.nextstate, epsilon)
    for cells, is_there in ((starts, read == 0), (ends, read == lengths)):
        places = np.flatnonzero(is_there.all(axis=1))
        barred[places[barred[places][:, cells].all(axis=1)]] = True
    return barred


def _outside_epsilons(weight: IntArray, origin: IntArray, epsilon: Arcs) -> IntArray:
    """Return the cells whose weight, closed under epsilon, comes from no other cell.

    `origin` (A,) is the end of each epsilon arc that the closure starts from.
    """
    others = epsilon.source + epsilon.nextstate - origin
    along = np.full(len(weight), INF)
    np.minimum.at(along, others, weight[origin] + epsilon.weight)
    return np.flatnonzero(weight < np.minimum(along, INF // 2))


def _num_strings(raw: RawAutomaton, class_of: IntArray) -> int:
    """Return the number of strings with a path, as an exact integer."""
    sizes = np.bincount(class_of, minlength=raw.levels[0].nextstate.shape[1]).astype(object)
    count = np.ones(len(raw.final), dtype=object)
    for level in reversed(raw.levels):
        count = (np.append(count, 0)[level.nextstate] * sizes).sum(axis=1)
    return int(count[0])


def _offsets(place: IntArray, lengths: IntArray, band: Band) -> tuple[IntArray, IntArray]:
    """Return the least and the greatest offset in the band (T,), for each target."""
    if isinstance(band, tuple):
        ends = np.array(band)[:, None] + np.zeros(place.shape[1], dtype=np.int64)
        return ends[0], ends[1]
    last = np.where(place[..., 1] < PAST_THE_END, place[..., 1], 0).max(axis=0)
    return np.minimum(0, last - lengths[1]) - band, np.maximum(0, last - lengths[0]) + band


def _clipped(offset: int) -> int:
    return max(-_BEYOND, min(int(offset), _BEYOND))
