"""Measures of predictions: accuracy, mean loss, error rate."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fstgrad.core.alphabet import Alphabet, WordAlphabet
from fstgrad.core.checks import FloatArray, instance
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import paired_batches, symbol_strings
from fstgrad.learning.edits import Edits, Errors, Symbols
from fstgrad.losses import EditDistance, Loss


class Evaluation(NamedTuple):
    """Measures of predictions against targets.

    pairs : number of pairs.
    accuracy : share of predictions that equal their target.
    loss : mean of L(prediction, target) in nats; nan without a loss.
    error_rate : the sum of edit distances, divided by the number of symbols of the targets.
    unknown : number of pairs whose target has a symbol outside the alphabet of the loss: they count
        as wrong, and are left out of `loss`.
    """

    pairs: int
    accuracy: float
    loss: float
    error_rate: float
    unknown: int = 0


def evaluate(
    predictions: Sequence[Symbols], targets: Sequence[Symbols], loss: Loss | None = None
) -> Evaluation:
    """Return the measures of predictions; for a word error rate, a str is a sentence.

    Examples
    --------
    >>> evaluate(["cat", "dog"], ["cat", "dug"])
    Evaluation(pairs=2, accuracy=0.5, loss=nan, error_rate=0.16666666666666666, unknown=0)
    """
    if loss is not None:
        instance("loss", loss, Loss, "a Loss")
        if isinstance(loss.alphabet, WordAlphabet):
            batches = paired_batches(predictions=predictions, targets=targets)
            predictions, targets = (
                [s.split() if isinstance(s, str) else s for s in strings] for strings in batches
            )
    predictions, targets = _paired(predictions, targets)
    pairs = list(zip(predictions, targets, strict=True))
    equal = sum(a == b for a, b in pairs)
    edits = edit_distances(predictions, targets)
    symbols = sum(len(target) for target in targets)
    if not symbols:
        raise InvalidInputError(
            f"the {len(pairs)} targets have no symbols; give at least one target that is not empty"
        )
    mean, unknown = float("nan"), 0
    if loss is not None:
        known = [(a, b) for a, b in pairs if all(symbol in loss.alphabet for symbol in b)]
        unknown = len(pairs) - len(known)
        mean = float(np.mean([loss(a, b) for a, b in known])) if known else mean
    return Evaluation(len(pairs), equal / len(pairs), mean, float(edits.sum()) / symbols, unknown)


def edit_distance(a: Symbols, b: Symbols) -> int:
    """Return the least number of insertions, deletions and substitutions."""
    return int(edit_distances([a], [b])[0])


def edit_distances(predictions: Sequence[Symbols], targets: Sequence[Symbols]) -> FloatArray:
    """Return the edit distance (N,) of each prediction from its target."""
    predictions, targets = _paired(predictions, targets)
    return _unit_distance([*predictions, *targets]).pairwise(predictions, targets)


def errors(predictions: Sequence[Symbols], targets: Sequence[Symbols]) -> Errors:
    """Return the substituted, missing and added symbols of predictions.

    Examples
    --------
    >>> found = errors(["cat", "dog"], ["cart", "dug"])
    >>> found.substituted, found.missing, found.added
    (((('o', 'u'), 1),), (((None, 'r'), 1),), ())
    """
    return Edits.of(*_paired(predictions, targets)).confusions()


def _paired(predictions: Any, targets: Any) -> tuple[list[Symbols], list[Symbols]]:
    """Return predictions and targets, equal in number, as tuples of symbols."""
    left, right = parallel_strings(predictions=predictions, targets=targets)
    if len(left) != len(right):
        raise InvalidInputError(
            f"there are {len(left)} predictions and {len(right)} targets; give one for each"
        )
    return left, right


def parallel_strings(**given: Any) -> list[list[Symbols]]:
    """Return batches of strings that belong together, as tuples of symbols.

    Raises
    ------
    InvalidInputError
        One has a str and another a list of words, or as in `paired_batches` and `symbol_strings`.
    """
    batches = dict(zip(given, paired_batches(**given), strict=True))
    parallel: list[list[Symbols]] = [[*symbol_strings(name, b)] for name, b in batches.items()]
    texts = [(name, s) for name, batch in batches.items() for s in batch if isinstance(s, str)]
    words = [
        (name, symbol)
        for (name, batch), strings in zip(batches.items(), parallel, strict=True)
        for s, string in zip(batch, strings, strict=True)
        for symbol in string
        if len(symbol) > 1 and not isinstance(s, str)
    ]
    if texts and words:
        raise InvalidInputError(
            f"{texts[0][0]} has the str {texts[0][1][:40]!r} and {words[0][0]} a list with the "
            f"symbol {words[0][1]!r}; give each as a str, or each as a list of words (text.split())"
        )
    return parallel


def _unit_distance(sequences: Sequence[Symbols]) -> EditDistance:
    symbols = sorted({symbol for sequence in sequences for symbol in sequence})
    return EditDistance(Alphabet(symbols or ["-"]))
