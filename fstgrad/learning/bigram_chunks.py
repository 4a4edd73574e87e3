"""Chunks of pairs whose scores are emissions and transitions: one loop over all of their features.

This is for `TemplateFeatures` of order 2.  The emissions of all pairs of a chunk are computed in
one loop over the active names.  Likelihoods are those of a batch of chains; margins and risks need
the passes along the loss automaton of each pair.  The gradient contains only the weights that the
chunk uses.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import FstgradError, InvalidInputError
from fstgrad.learning.emissions import Emissions, permuted
from fstgrad.learning.objective import PairObjective
from fstgrad.learning.sums import Chunk, Item, Outcome, Sums
from fstgrad.learning.template_features import TemplateFeatures
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.strings.bigrams import Bigrams, risk_of_bigrams, solve_bigrams
from fstgrad.strings.packed_chains import Packed, solve_packed

_KINDS = ("softmax-margin", "risk", "crf")
Found = dict[int, tuple[Any, ...]]  # place -> the fields of `Outcome` after place and seconds


class Coded(NamedTuple):
    """The readable pairs of a chunk, as numbers.

    pairs : the items of the chunk
    places : the places of the readable pairs in the chunk
    errors : the errors of the other pairs, by place
    emissions : the names of all positions, one output after another, or packed
    gold : (positions,) int64, the symbols of y
    before : (positions,) the symbol before each symbol of y, n at the start
    ends : (k + 1,) int64, where each output begins if they are stored one after another
    packed : the layout in which the longest outputs come first and equal positions are adjacent
    support : the indices of the weights that the chunk uses, those of pairs with names first
    """

    pairs: list[Item]
    places: list[int]
    errors: dict[int, FstgradError]
    emissions: Emissions
    gold: IntArray
    before: IntArray
    ends: IntArray
    packed: Packed | None
    support: IntArray


class _Read(NamedTuple):
    """Readable pairs: places in the chunk, inputs with lengths, symbols of y; and the errors."""

    places: list[int]
    inputs: list[tuple[Any, int]]
    gold: list[IntArray]
    errors: dict[int, FstgradError]


def applies(objective: PairObjective) -> bool:
    """Whether this module can compute the chunks of an objective."""
    features = objective.features
    return (
        isinstance(features, TemplateFeatures)
        and features.order == 2
        and objective.engine == "layered"
        and objective.kind in _KINDS
        and objective.method in (None, "exact", "capped")
        and objective.cap != "auto"
    )


def work(objective: PairObjective, w: FloatArray, first: int, pairs: Sequence[Item]) -> Chunk:
    """Return the outcomes and sums of consecutive pairs; an item may be an error."""
    started, features = time.perf_counter(), cast(TemplateFeatures, objective.features)
    coded = _coded(features, first, list(pairs), is_packed=objective.is_likelihood)
    own = w[coded.support[: len(coded.emissions.pairs.symbol)]]
    scores = Bigrams(coded.emissions.scores(own), features.grams(w)[0])
    if objective.is_likelihood:
        (found, change), errors = _likelihoods(scores, coded), coded.errors
    else:
        change = Bigrams(np.zeros_like(scores.emissions), np.zeros_like(scores.transitions))
        found, errors = _with_losses(objective, scores, coded, change)
    sums = Sums(_gradient(coded, change), failed=len(errors), support=coded.support)
    each = (time.perf_counter() - started) / max(1, len(pairs))
    outcomes = [Outcome(first + i, each, *found[i]) for i in sorted(found)]
    sums.value, sums.done = sum(outcome.value for outcome in outcomes), len(outcomes)
    for i, error in sorted(errors.items()):
        outcomes.insert(i, Outcome(first + i, each, error=error.with_traceback(None)))
    return Chunk(tuple(outcomes), sums)


def _coded(features: TemplateFeatures, first: int, pairs: list[Item], *, is_packed: bool) -> Coded:
    """Return the pairs as numbers; they are kept between passes."""
    kept: _Kept | None = features.chunks.get(first)
    if kept is not None and kept.is_of(pairs, is_packed=is_packed):
        return kept.restored(features)
    coded = _code(features, pairs, is_packed=is_packed)
    made = _Kept.of(coded)
    total = features.chunk_bytes + made.nbytes - (0 if kept is None else kept.nbytes)
    if total <= features.chunk_limit:  # a full store keeps its chunks, because passes are cyclic
        features.chunks[first], features.chunk_bytes = made, total
    return coded


class _Kept(NamedTuple):
    """A chunk without the parts that can be recomputed.

    coded : the chunk without support and symbols of pairs
    pair_support : the indices of the weights of its pairs, int32 if possible
    nbytes : the size of its arrays in bytes
    """

    coded: Coded
    pair_support: IntArray
    nbytes: int

    @classmethod
    def of(cls, coded: Coded) -> "_Kept":
        """Return a chunk in its compact form."""
        pairs = coded.emissions.pairs
        support = coded.support[: len(pairs.symbol)]
        if support.max(initial=0) < 2**31:
            support = support.astype(np.int32)
        none = np.zeros(0, dtype=np.int64)
        emissions = coded.emissions._replace(pairs=pairs._replace(symbol=none))
        small = coded._replace(emissions=emissions, support=none)
        parts = (*emissions.often, *emissions.seldom, *(coded.packed or ()))
        arrays = (support, pairs.first, coded.gold, coded.before, coded.ends, *parts)
        return cls(small, support, sum(array.nbytes for array in arrays))

    def is_of(self, pairs: list[Item], *, is_packed: bool) -> bool:
        """Whether this is the chunk of these pairs."""
        return self.coded.pairs == pairs and is_packed == (self.coded.packed is not None)

    def restored(self, features: TemplateFeatures) -> Coded:
        """Return the whole chunk."""
        own = self.pair_support.astype(np.int64)
        pairs = self.coded.emissions.pairs._replace(symbol=features.pairs.symbol[own])
        emissions = self.coded.emissions._replace(pairs=pairs)
        support = np.concatenate([own, features.gram_support])
        return self.coded._replace(emissions=emissions, support=support)


def _code(features: TemplateFeatures, pairs: list[Item], *, is_packed: bool) -> Coded:
    read = _read(features, pairs)
    n = len(features.alphabet)
    if is_packed:
        order = sorted(range(len(read.gold)), key=lambda i: -len(read.gold[i]))
        read = read._replace(
            places=[read.places[i] for i in order],
            inputs=[read.inputs[i] for i in order],
            gold=[read.gold[i] for i in order],
        )
    lengths = np.array([len(ids) for ids in read.gold], dtype=np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    encoded = features.coded(read.inputs)
    gold = np.concatenate([np.zeros(0, dtype=np.int64), *read.gold])
    before = np.concatenate([np.full(min(1, len(gold)), n), gold[:-1]])
    before[ends[:-1]] = n
    packed = None
    if is_packed:
        packed = Packed.of(lengths)
        rows = ends[packed.item] + packed.position
        encoded, gold, before = permuted(encoded, rows), gold[rows], before[rows]
    emissions, support = Emissions.of(features, encoded)
    return Coded(pairs, read.places, read.errors, emissions, gold, before, ends, packed, support)


def _read(features: TemplateFeatures, pairs: list[Item]) -> _Read:
    """Return the readable pairs, and the errors of the others."""
    found = _Read([], [], [], {})
    for place, pair in enumerate(pairs):
        try:
            if isinstance(pair, FstgradError):
                raise pair
            ids = features.alphabet.encode(pair[1], name="y")
            if len(ids) == 0:
                raise InvalidInputError("y is empty; give at least one symbol")
        except FstgradError as error:
            found.errors[place] = error
            continue
        found.places.append(place)
        found.inputs.append((pair[0], len(ids)))
        found.gold.append(ids)
    return found


def _likelihoods(scores: Bigrams, coded: Coded) -> tuple[Found, Bigrams]:
    """Return the negative log-likelihoods and their derivatives with respect to the scores."""
    packed = cast(Packed, coded.packed)
    emissions, transitions = scores
    if not coded.places:
        return {}, Bigrams(emissions, np.zeros_like(transitions))
    n, rows, starts = emissions.shape[1], np.arange(len(emissions)), packed.sizes[0]
    emissions[:starts] += transitions[n]
    own = emissions[rows, coded.gold]
    own[starts:] += transitions[coded.before[starts:], coded.gold[starts:]]
    solved = solve_packed(emissions, transitions[:n], packed)
    values = solved.log_z - np.bincount(packed.item, own, len(coded.places))
    steps = np.bincount(coded.before * n + coded.gold, minlength=n * (n + 1)).reshape(n + 1, n)
    change = Bigrams(solved.node, np.vstack([solved.pairs, solved.node[:starts].sum(axis=0)]))
    np.subtract(change.transitions, steps, out=change.transitions)
    change.emissions[rows, coded.gold] -= 1.0
    numbers = zip(values.tolist(), solved.log_z.tolist(), strict=True)
    return dict(zip(coded.places, numbers, strict=True)), change


def _with_losses(
    objective: PairObjective, scores: Bigrams, coded: Coded, change: Bigrams
) -> tuple[Found, dict[int, FstgradError]]:
    """Return the margins or risks, and the errors; write the derivatives in the scores."""
    found: Found = {}
    errors = dict(coded.errors)
    for k, place in enumerate(coded.places):
        part = slice(coded.ends[k], coded.ends[k + 1])
        own = scores._replace(emissions=scores.emissions[part])
        try:
            found[place] = _with_loss(objective, own, coded.gold[part], change, part)[2:]
        except FstgradError as error:
            errors[place] = error
    return found, errors


def _with_loss(
    objective: PairObjective, scores: Bigrams, ids: IntArray, change: Bigrams, part: slice
) -> Outcome:
    """Return the margin or the risk of one pair, and write its derivatives in the scores."""
    b = cast(LossAutomaton, objective.automaton(ids))
    if objective.kind == "risk":
        log_z, value, terms = risk_of_bigrams(scores, b)
    else:
        log_z, terms = solve_bigrams(scores, b)
        value = log_z - scores.of(ids)
        before = np.concatenate([[len(objective.features.alphabet)], ids[:-1]])
        terms.emissions[np.arange(len(ids)), ids] -= 1.0
        np.subtract.at(terms.transitions, (before, ids), 1.0)
    change.emissions[part] = terms.emissions
    np.add(change.transitions, terms.transitions, out=change.transitions)
    own = Outcome(0, 0.0, value, log_z, b.num_states)
    if objective.cap is None:
        return own
    return own._replace(method="capped", cap=float(objective.cap))


def _gradient(coded: Coded, change: Bigrams) -> FloatArray:
    """Return the gradient in the weights that the chunk uses."""
    size = len(coded.emissions.pairs.symbol)
    gradient = np.zeros(len(coded.support))
    coded.emissions.adjoint(change.emissions, gradient[:size])
    gradient[size:] = change.transitions.ravel()
    return gradient
