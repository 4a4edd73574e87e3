"""Chunks of pairs whose scores are emissions and transitions: one walk over all of their features.

For `TemplateFeatures` of order 2.  The emissions of all pairs of a chunk are gathered in one loop
over the active names, likelihoods are those of a batch of chains, margins and risks take the passes
along the loss automaton of each pair, and the gradient has the weights that the chunk touches.
"""

import time
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from fstgrad.automata.automaton import LossAutomaton
from fstgrad.checks import FloatArray, IntArray
from fstgrad.errors import FstgradError, InvalidInputError
from fstgrad.strings.bigrams import Bigrams, risk_of_bigrams, solve_bigrams
from fstgrad.strings.linear_chain import LinearChains
from fstgrad.training import kernels
from fstgrad.training.objective import PairObjective
from fstgrad.training.sums import Chunk, Item, Outcome, Sums
from fstgrad.training.template_features import Encoded, Pairs, TemplateFeatures

_KEPT = 2**14  # chunks whose numbers are remembered
_KINDS = ("softmax-margin", "risk", "crf")


class Coded(NamedTuple):
    """The pairs of a chunk that can be read, as numbers.

    pairs : the items of the chunk
    places : of the pairs that can be read, in the chunk
    errors : of the others, by place
    encoded : the names of all positions, one output after another
    gold : (positions,) int64, the symbols of y
    before : (positions,) the symbol before each, n at the start
    ends : (k + 1,) int64, where the outputs begin
    pairs_of_names : the pairs of the names of the chunk; `encoded` has their numbers here
    support : the weights that the chunk touches, those of `pairs_of_names` first
    """

    pairs: list[Item]
    places: list[int]
    errors: dict[int, FstgradError]
    encoded: Encoded
    gold: IntArray
    before: IntArray
    ends: IntArray
    pairs_of_names: Pairs
    support: IntArray


def applies(objective: PairObjective) -> bool:
    """Whether the chunks of an objective can be computed here."""
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
    """Return the outcomes and sums of consecutive pairs; a pair that is an error stays one."""
    started, features = time.perf_counter(), cast(TemplateFeatures, objective.features)
    coded = _coded(features, first, list(pairs))
    scores = _scores(features, w, coded)
    change = Bigrams(np.zeros_like(scores.emissions), np.zeros_like(scores.transitions))
    if objective.kind == "crf" or objective.loss is None:
        found, errors = _likelihoods(scores, coded, change), coded.errors
    else:
        found, errors = _with_losses(objective, scores, coded, change)
    sums = Sums(_gradient(coded, change), failed=len(errors), places=coded.support)
    each = (time.perf_counter() - started) / max(1, len(pairs))
    outcomes = [found[i]._replace(place=first + i, seconds=each) for i in sorted(found)]
    sums.value, sums.done = sum(outcome.value for outcome in outcomes), len(outcomes)
    for i, error in sorted(errors.items()):
        outcomes.insert(i, Outcome(first + i, each, error=error.with_traceback(None)))
    return Chunk(tuple(outcomes), sums)


def _coded(features: TemplateFeatures, first: int, pairs: list[Item]) -> Coded:
    """Return the pairs as numbers, kept from one pass to the next."""
    kept = features.chunks.get(first)
    if kept is None or kept.pairs != pairs:
        if len(features.chunks) >= _KEPT:
            features.chunks.clear()
        kept = _code(features, pairs)
        features.chunks[first] = kept
    return kept


def _code(features: TemplateFeatures, pairs: list[Item]) -> Coded:
    places: list[int] = []
    inputs: list[tuple[Any, int]] = []
    gold: list[IntArray] = []
    errors: dict[int, FstgradError] = {}
    n = len(features.alphabet)
    for place, pair in enumerate(pairs):
        try:
            if isinstance(pair, FstgradError):
                raise pair
            ids = features.alphabet.encode(pair[1], name="y")
            if len(ids) == 0:
                raise InvalidInputError("y is empty; give at least one symbol")
        except FstgradError as error:
            errors[place] = error
            continue
        places.append(place)
        inputs.append((pair[0], len(ids)))
        gold.append(ids)
    starts, ids, copies = features.coded(inputs)
    names, own = np.unique(ids, return_inverse=True)
    ends = np.cumsum([0, *map(len, gold)], dtype=np.int64)
    symbols = np.concatenate([np.zeros(0, dtype=np.int64), *gold])
    before = np.concatenate([np.full(min(1, len(symbols)), n), symbols[:-1]])
    before[ends[:-1]] = n
    chosen, support = features.chosen(names)
    encoded = Encoded(starts, own.astype(np.int64), copies)
    return Coded(pairs, places, errors, encoded, symbols, before, ends, chosen, support)


def _scores(features: TemplateFeatures, w: FloatArray, coded: Coded) -> Bigrams:
    """Return emissions (positions, n) and transitions of all pairs that can be read."""
    pairs = coded.pairs_of_names
    single = np.empty((len(coded.gold), len(features.alphabet)))
    own = w[coded.support[: len(pairs.symbol)]]
    kernels.templates.gather(*coded.encoded, *pairs, own, single)
    return Bigrams(single, features.grams(w)[0])


def _likelihoods(scores: Bigrams, coded: Coded, change: Bigrams) -> dict[int, Outcome]:
    """Return the negative log-likelihoods, and write their derivatives in the scores."""
    if not coded.places:
        return {}
    emissions, transitions = scores
    lengths, n = np.diff(coded.ends), emissions.shape[1]
    inside = np.arange(lengths.max()) < lengths[:, None]
    padded = np.zeros((*inside.shape, n))
    padded[inside] = emissions
    padded[:, 0] += transitions[n]
    chains = LinearChains(padded, transitions[:n], lengths)
    solved = chains.solve()
    positions = np.arange(len(emissions))
    own = emissions[positions, coded.gold] + transitions[coded.before, coded.gold]
    gold = np.add.reduceat(own, coded.ends[:-1])
    change.emissions[:] = solved.node[inside]
    change.emissions[positions, coded.gold] -= 1.0
    change.transitions[:n] = chains.pair_sums(solved, np.ones(len(lengths)))
    change.transitions[n] = solved.node[:, 0].sum(axis=0)
    np.subtract.at(change.transitions, (coded.before, coded.gold), 1.0)
    numbers = zip(coded.places, (solved.log_z - gold).tolist(), solved.log_z.tolist(), strict=True)
    return {place: Outcome(place, 0.0, value, log_z) for place, value, log_z in numbers}


def _with_losses(
    objective: PairObjective, scores: Bigrams, coded: Coded, change: Bigrams
) -> tuple[dict[int, Outcome], dict[int, FstgradError]]:
    """Return the margins or risks, and what failed; write their derivatives in the scores."""
    found: dict[int, Outcome] = {}
    errors = dict(coded.errors)
    for k, place in enumerate(coded.places):
        part = slice(coded.ends[k], coded.ends[k + 1])
        own = scores._replace(emissions=scores.emissions[part])
        try:
            outcome = _with_loss(objective, own, coded.gold[part], change, part)
            found[place] = outcome._replace(place=place)
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
    """Return the gradient of the weights that the chunk touches."""
    pairs = coded.pairs_of_names
    gradient = np.zeros(len(coded.support))
    kernels.templates.scatter(*coded.encoded, *pairs, change.emissions, gradient)
    gradient[len(pairs.symbol) :] = change.transitions.ravel()
    return gradient
