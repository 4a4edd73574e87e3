"""The most probable outputs of many inputs at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.strings import StringDistribution
from fstgrad.strings.linear_chain import LinearChains
from fstgrad.training.template_features import TemplateFeatures

BLOCK = 64  # outputs per call; they are sorted by length, so that few positions are padded


def best(
    features: TemplateFeatures, w: FloatArray, inputs: Sequence[tuple[Any, int]]
) -> list[IntArray]:
    """Return the most probable string (l,) of every (x, l)."""
    if features.order != 2:
        return [StringDistribution(features.scores(w, x, length)).mode() for x, length in inputs]
    order = np.argsort([length for _, length in inputs], kind="stable").tolist()
    found: dict[int, IntArray] = {}
    for start in range(0, len(order), BLOCK):
        part = order[start : start + BLOCK]
        found |= zip(part, _best(features, w, [inputs[i] for i in part]), strict=True)
    return [found[i] for i in range(len(inputs))]


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
