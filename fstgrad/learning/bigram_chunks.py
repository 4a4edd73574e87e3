"""Chunks of pairs whose scores are emissions and transitions: one loop over all of their features.

This is for `TemplateFeatures` of order 2, whose score is the sum of an emission of each symbol and
of a transition between neighbours (`fstgrad.strings.bigrams`).  The emissions of all pairs of a
chunk are computed in one loop over the active names.  Likelihoods are those of a batch of chains;
margins and risks need the passes along the loss automaton of each pair.  The gradient contains only
the weights that the chunk uses.

- `applies`, `compute_chunk` : the entry points.
- `Emissions` : the linear map from the weights to the emissions of a chunk, and its adjoint.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.errors import FstgradError, InvalidInputError
from fstgrad.core.uninitialized import empty, empty_like
from fstgrad.learning import kernels
from fstgrad.learning.objective import PairObjective
from fstgrad.learning.outcomes import Chunk, Item, Outcome, Sums
from fstgrad.learning.template_features import Encoded, Pairs, TemplateFeatures
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.strings.bigrams import Bigrams, risk_of_bigrams, solve_bigrams
from fstgrad.strings.packed_chains import Packed, solve_packed

_OBJECTIVE_KINDS = ("softmax-margin", "risk", "crf")
_LEAST_OCCURRENCES = 2  # of a name with a row in `Emissions`
_LEAST_SHARE = 6  # a name with a row is paired with at least 1 / _LEAST_SHARE of the symbols
Results = dict[int, tuple[Any, ...]]  # place -> the fields of `Outcome` after place and seconds


def applies(objective: PairObjective) -> bool:
    """Whether this module can compute the chunks of an objective."""
    features = objective.features
    return (
        isinstance(features, TemplateFeatures)
        and features.order == 2
        and objective.engine == "layered"
        and objective.kind in _OBJECTIVE_KINDS
        and objective.method in (None, "exact", "capped")
        and objective.cap != "auto"
    )


def compute_chunk(
    objective: PairObjective, w: FloatArray, first: int, pairs: Sequence[Item]
) -> Chunk:
    """Return the outcomes and sums of consecutive pairs; an item may be an error."""
    started, features = time.perf_counter(), cast(TemplateFeatures, objective.features)
    encoded = _encoded(features, first, list(pairs), is_packed=objective.is_likelihood)
    pair_weights = w[encoded.support[: len(encoded.emissions.pairs.symbol)]]
    scores = Bigrams(encoded.emissions.scores(pair_weights), features.grams(w)[0])
    if objective.is_likelihood:
        (results, gradient), errors = _likelihoods(scores, encoded), encoded.errors
    else:
        gradient = Bigrams(np.zeros_like(scores.emissions), np.zeros_like(scores.transitions))
        results, errors = _with_losses(objective, scores, encoded, gradient)
    sums = Sums(_weight_gradient(encoded, gradient), failed=len(errors), support=encoded.support)
    seconds = (time.perf_counter() - started) / max(1, len(pairs))
    outcomes = [Outcome(first + i, seconds, *results[i]) for i in sorted(results)]
    sums.value, sums.done = sum(outcome.value for outcome in outcomes), len(outcomes)
    for i, error in sorted(errors.items()):
        outcomes.insert(i, Outcome(first + i, seconds, error=error.with_traceback(None)))
    return Chunk(tuple(outcomes), sums)


class Emissions(NamedTuple):
    """The names of all positions of a chunk, and the pairs that have weights.

    Frequent names have a row of a table, others have a list.  A row costs n + 1 additions, which
    the processor vectorizes.  A list costs one addition for each pair of the name and a symbol, one
    after another.

    Attributes
    ----------
    frequent, rare : the names with rows and those with lists
    pairs : of all names, those with rows first
    rows : number of names with rows
    n : number of symbols
    """

    frequent: Encoded
    rare: Encoded
    pairs: Pairs
    rows: int
    n: int

    @classmethod
    def of(cls, features: TemplateFeatures, encoded: Encoded) -> tuple["Emissions", IntArray]:
        """Return the emissions of a chunk and the indices of its weights, with q-grams last."""
        n = len(features.alphabet)
        names, name_of, counts = np.unique(encoded.ids, return_inverse=True, return_counts=True)
        first = features.pairs.first
        sizes = first[names + 1] - first[names]
        is_row = (counts >= _LEAST_OCCURRENCES) & (sizes * _LEAST_SHARE >= n)
        order = np.argsort(~is_row, kind="stable")
        number = empty_like(order)
        number[order] = np.arange(len(order))
        pairs, support = features.chosen(names[order])
        ids, rows = number[name_of], int(is_row.sum())
        frequent = _selected(encoded, ids, ids < rows)
        return cls(frequent, _selected(encoded, ids, ids >= rows), pairs, rows, n), support

    def scores(self, w: FloatArray) -> FloatArray:
        """Return the emissions (positions, n) for weights w of the pairs."""
        emissions = empty((len(self.frequent.copies), self.n))
        kernels.templates.gather(*self.rare, *self.pairs, w, emissions)
        if self.rows:
            table = np.zeros((self.rows, self.n + 1))
            kernels.templates.weights_to_rows(*self.pairs, w, table)
            kernels.templates.gather_rows(*self.frequent, table, emissions)
        return emissions

    def adjoint(self, gradient: FloatArray, out: FloatArray) -> None:
        """Write the adjoint of `scores`, applied to (positions, n), to `out`: zeros like w."""
        kernels.templates.scatter(*self.rare, *self.pairs, gradient, out)
        if self.rows:
            table = np.zeros((self.rows, self.n + 1))
            kernels.templates.scatter_rows(*self.frequent, gradient, table)
            kernels.templates.rows_to_weights(*self.pairs, table, out)


def _selected(encoded: Encoded, ids: IntArray, is_selected: BoolArray) -> Encoded:
    """Return the positions with the numbers `ids` of their names, those that are selected."""
    before = np.concatenate([[0], np.cumsum(is_selected)])
    return Encoded(before[encoded.starts], ids[is_selected], encoded.copies)


def _permuted(encoded: Encoded, order: IntArray) -> Encoded:
    """Return the positions in another order."""
    sizes = np.diff(encoded.starts)[order]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    ids = encoded.ids[np.repeat(encoded.starts[order] - starts[:-1], sizes) + np.arange(starts[-1])]
    return Encoded(starts, ids, encoded.copies[order])


class EncodedChunk(NamedTuple):
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


def _encoded(
    features: TemplateFeatures, first: int, pairs: list[Item], *, is_packed: bool
) -> EncodedChunk:
    """Return the pairs as numbers; they are kept between passes."""
    stored: _StoredChunk | None = features.chunks.get(first)
    if stored is not None and stored.is_of(pairs, is_packed=is_packed):
        return stored.restored(features)
    chunk = _encode(features, pairs, is_packed=is_packed)
    compact = _StoredChunk.of(chunk)
    total = features.chunk_bytes + compact.nbytes - (0 if stored is None else stored.nbytes)
    if total <= features.chunk_limit:  # a full store keeps its chunks, because passes are cyclic
        features.chunks[first], features.chunk_bytes = compact, total
    return chunk


class _StoredChunk(NamedTuple):
    """A chunk without the parts that can be recomputed.

    chunk : the chunk without support and symbols of pairs
    pair_support : the indices of the weights of its pairs, int32 if possible
    nbytes : the size of its arrays in bytes
    """

    chunk: EncodedChunk
    pair_support: IntArray
    nbytes: int

    @classmethod
    def of(cls, chunk: EncodedChunk) -> "_StoredChunk":
        """Return a chunk in its compact form."""
        pairs = chunk.emissions.pairs
        support = chunk.support[: len(pairs.symbol)]
        if support.max(initial=0) < 2**31:
            support = support.astype(np.int32)
        none = np.zeros(0, dtype=np.int64)
        emissions = chunk.emissions._replace(pairs=pairs._replace(symbol=none))
        compact = chunk._replace(emissions=emissions, support=none)
        parts = (*emissions.frequent, *emissions.rare, *(chunk.packed or ()))
        arrays = (support, pairs.first, chunk.gold, chunk.before, chunk.ends, *parts)
        return cls(compact, support, sum(array.nbytes for array in arrays))

    def is_of(self, pairs: list[Item], *, is_packed: bool) -> bool:
        """Whether this is the chunk of these pairs."""
        return self.chunk.pairs == pairs and is_packed == (self.chunk.packed is not None)

    def restored(self, features: TemplateFeatures) -> EncodedChunk:
        """Return the chunk with all its parts."""
        pair_support = self.pair_support.astype(np.int64)
        symbol = features.pairs.symbol[pair_support]
        pairs = self.chunk.emissions.pairs._replace(symbol=symbol)
        emissions = self.chunk.emissions._replace(pairs=pairs)
        support = np.concatenate([pair_support, features.gram_support])
        return self.chunk._replace(emissions=emissions, support=support)


class _ReadablePairs(NamedTuple):
    """Readable pairs: places in the chunk, inputs with lengths, symbols of y; and the errors."""

    places: list[int]
    inputs: list[tuple[Any, int]]
    gold: list[IntArray]
    errors: dict[int, FstgradError]


def _readable(features: TemplateFeatures, pairs: list[Item]) -> _ReadablePairs:
    """Return the readable pairs, and the errors of the others."""
    readable = _ReadablePairs([], [], [], {})
    for place, pair in enumerate(pairs):
        try:
            if isinstance(pair, FstgradError):
                raise pair
            ids = features.alphabet.encode(pair[1], name="y")
            if len(ids) == 0:
                raise InvalidInputError("y is empty; give at least one symbol")
        except FstgradError as error:
            readable.errors[place] = error
            continue
        readable.places.append(place)
        readable.inputs.append((pair[0], len(ids)))
        readable.gold.append(ids)
    return readable


def _encode(features: TemplateFeatures, pairs: list[Item], *, is_packed: bool) -> EncodedChunk:
    readable = _readable(features, pairs)
    n = len(features.alphabet)
    if is_packed:
        order = sorted(range(len(readable.gold)), key=lambda i: -len(readable.gold[i]))
        readable = readable._replace(
            places=[readable.places[i] for i in order],
            inputs=[readable.inputs[i] for i in order],
            gold=[readable.gold[i] for i in order],
        )
    lengths = np.array([len(ids) for ids in readable.gold], dtype=np.int64)
    ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    encoded = features.coded(readable.inputs)
    gold = np.concatenate([np.zeros(0, dtype=np.int64), *readable.gold])
    before = np.concatenate([np.full(min(1, len(gold)), n), gold[:-1]])
    before[ends[:-1]] = n
    packed = None
    if is_packed:
        packed = Packed.of(lengths)
        rows = ends[packed.item] + packed.position
        encoded, gold, before = _permuted(encoded, rows), gold[rows], before[rows]
    emissions, support = Emissions.of(features, encoded)
    return EncodedChunk(
        pairs, readable.places, readable.errors, emissions, gold, before, ends, packed, support
    )


def _likelihoods(scores: Bigrams, chunk: EncodedChunk) -> tuple[Results, Bigrams]:
    """Return the negative log-likelihoods, log Z - score(y), and their gradient in the scores.

    The gradient is the marginals of emissions and transitions minus those of the gold outputs.  The
    first symbol of an output has the transition from the start, row n, which the passes over packed
    chains do not know: it is added to the emissions of the first positions.
    """
    packed = cast(Packed, chunk.packed)
    emissions, transitions = scores
    if not chunk.places:
        return {}, Bigrams(emissions, np.zeros_like(transitions))
    n, rows, starts = emissions.shape[1], np.arange(len(emissions)), packed.sizes[0]
    emissions[:starts] += transitions[n]
    gold_scores = emissions[rows, chunk.gold]
    gold_scores[starts:] += transitions[chunk.before[starts:], chunk.gold[starts:]]
    solved = solve_packed(emissions, transitions[:n], packed)
    values = solved.log_z - np.bincount(packed.item, gold_scores, len(chunk.places))
    gold_counts = np.bincount(chunk.before * n + chunk.gold, minlength=n * (n + 1))
    gradient = Bigrams(solved.node, np.vstack([solved.pairs, solved.node[:starts].sum(axis=0)]))
    np.subtract(gradient.transitions, gold_counts.reshape(n + 1, n), out=gradient.transitions)
    gradient.emissions[rows, chunk.gold] -= 1.0
    numbers = zip(values.tolist(), solved.log_z.tolist(), strict=True)
    return dict(zip(chunk.places, numbers, strict=True)), gradient


def _with_losses(
    objective: PairObjective, scores: Bigrams, chunk: EncodedChunk, gradient: Bigrams
) -> tuple[Results, dict[int, FstgradError]]:
    """Return the margins or risks, and the errors; write the gradient in the scores."""
    results: Results = {}
    errors = dict(chunk.errors)
    for k, place in enumerate(chunk.places):
        part = slice(chunk.ends[k], chunk.ends[k + 1])
        pair_scores = scores._replace(emissions=scores.emissions[part])
        try:
            outcome = _with_loss(objective, pair_scores, chunk.gold[part], gradient, part)
        except FstgradError as error:
            errors[place] = error
        else:
            results[place] = outcome[2:]
    return results, errors


def _with_loss(
    objective: PairObjective, scores: Bigrams, ids: IntArray, gradient: Bigrams, part: slice
) -> Outcome:
    """Return the margin or the risk of one pair, and write its gradient in the scores."""
    b = cast(LossAutomaton, objective.automaton(ids))
    if objective.kind == "risk":
        log_z, value, terms = risk_of_bigrams(scores, b)
    else:
        log_z, terms = solve_bigrams(scores, b)
        value = log_z - scores.score(ids)
        before = np.concatenate([[len(objective.features.alphabet)], ids[:-1]])
        terms.emissions[np.arange(len(ids)), ids] -= 1.0
        np.subtract.at(terms.transitions, (before, ids), 1.0)
    gradient.emissions[part] = terms.emissions
    np.add(gradient.transitions, terms.transitions, out=gradient.transitions)
    outcome = Outcome(0, 0.0, value, log_z, b.num_states)
    if objective.cap is None:
        return outcome if objective.prune is None else outcome._replace(method="pruned")
    return outcome._replace(method="capped", cap=float(objective.cap))


def _weight_gradient(chunk: EncodedChunk, gradient: Bigrams) -> FloatArray:
    """Return the gradient in the weights that the chunk uses."""
    size = len(chunk.emissions.pairs.symbol)
    result = np.zeros(len(chunk.support))
    chunk.emissions.adjoint(gradient.emissions, result[:size])
    result[size:] = gradient.transitions.ravel()
    return result
