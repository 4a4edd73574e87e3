"""The most probable outputs of many inputs at once."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.learning.template_features import TemplateFeatures
from fstgrad.strings import StringDistribution
from fstgrad.strings.linear_chain import LinearChains

ROWS = 2**13  # positions per call, with padding, at most; one output may have more
CELLS = 2**21  # positions times symbols per call


def best(
    features: TemplateFeatures, w: FloatArray, inputs: Sequence[tuple[Any, int]]
) -> list[IntArray]:
    """Return the most probable string (l,) of every (x, l)."""
    if features.order != 2:
        return [StringDistribution(features.scores(w, x, length)).mode() for x, length in inputs]
    found: dict[int, IntArray] = {}
    most = min(ROWS, CELLS // len(features.alphabet))
    for part in _parts([length for _, length in inputs], most):
        found |= zip(part, _best(features, w, [inputs[i] for i in part]), strict=True)
    return [found[i] for i in range(len(inputs))]


def _parts(lengths: list[int], most: int) -> Iterator[list[int]]:
    """Yield the indices of outputs of similar lengths: `most` positions, with little padding."""
    part: list[int] = []
    for i in np.argsort(lengths, kind="stable").tolist():
        if part and (len(part) + 1) * lengths[i] > most:
            yield part
            part = []
        part.append(i)
    yield part


def decoded(alphabet: Alphabet, strings: Sequence[IntArray]) -> list[list[str]]:
    """Return the symbols of strings of ids."""
    symbols = iter(alphabet.decode(np.concatenate(strings)))
    return [list(itertools.islice(symbols, len(ids))) for ids in strings]


def _best(
    features: TemplateFeatures, w: FloatArray, inputs: Sequence[tuple[Any, int]]
) -> list[IntArray]:
    lengths = np.array([length for _, length in inputs], dtype=np.int64)
    inside = np.arange(lengths.max()) < lengths[:, None]
    n = len(features.alphabet)
    emissions, transitions = np.zeros((*inside.shape, n)), features.grams(w)[0]
    emissions[inside] = features.emissions(w, features.coded(inputs))
    emissions[:, 0] += transitions[n]
    strings, _ = LinearChains(emissions, transitions[:n], lengths).best()
    return [ids[:length] for ids, length in zip(strings, lengths.tolist(), strict=True)]
