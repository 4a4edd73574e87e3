"""Attachment scores of a distribution, or of predicted trees, against a treebank."""

import contextlib
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np

from fstgrad.core.bootstrap import Interval, difference, interval, ratio, ratios, resampled_sums
from fstgrad.core.checks import BoolArray, Seed
from fstgrad.core.errors import InfeasibleError, InvalidInputError, warn
from fstgrad.trees.distribution import TreeDistribution
from fstgrad.trees.structures import PADDING
from fstgrad.trees.treebank import Sentence

PUNCTUATION = "PUNCT"
COUNTS = ("words", "words_no_punct")
MEASURES = ("uas", "uas_no_punct", "las", "las_no_punct")


def sentence_scores(
    distribution: TreeDistribution,
    sentence: Sentence,
    names: Sequence[str] | None,
    *,
    minimum_risk: bool = False,
    universal: bool = False,
) -> dict[str, Any]:
    """Return the scores of one sentence against its gold tree.

    names : the relations of the label axis.  uas and las are shares of the words with a known head
    that have the right head, or the right head and relation; a relation not in `names` is wrong.
    `gold_log_prob` is that of all trees with the known heads and relations: -inf if the family
    (several root arcs, crossing arcs) or the labels forbid them, None if all heads are unknown.
    With `universal`, relations count up to their first colon, nsubj for nsubj:pass, and a relation
    not in `names` stands for its universal one.
    """
    n = len(sentence.heads)
    check_length(distribution, sentence.name, n)
    best = distribution.minimum_risk_tree() if minimum_risk else distribution.mode()
    known = sentence.heads != PADDING
    real = known & _not_punctuation(sentence)
    right = (best[:, 0] if distribution.labeled else best) == sentence.heads
    arcs = distribution.marginals()
    arcs = arcs.sum(axis=-1) if distribution.labeled else arcs
    row: dict[str, Any] = {"sentence": sentence.name}
    row |= {"words": int(known.sum()), "words_no_punct": int(real.sum())}
    row |= {"uas": _mean(right[known]), "uas_no_punct": _mean(right[real])}
    gold = sentence.heads
    exists = not distribution.single_root or gold.tolist().count(0) <= 1
    if distribution.labeled:
        listed = checked_names(distribution, names)
        place = {name: i for i, name in enumerate(listed)}
        compared = [_universal(r) if universal else r for r in sentence.relations]
        indices = [
            place.get(relation, place.get(other, PADDING))
            for relation, other in zip(sentence.relations, compared, strict=True)
        ]
        relations = np.array(indices, dtype=np.int64)
        gold = np.stack([gold, np.where(known, relations, PADDING)], axis=-1)
        exists &= not (known & (relations == PADDING)).any()
        predicted = [_universal(listed[i]) if universal else listed[i] for i in best[:, 1]]
        both = right & (np.array(predicted) == np.array(compared))
        row |= {"las": _mean(both[known]), "las_no_punct": _mean(both[real])}
    row["expected"] = _mean(arcs[sentence.heads[known], np.arange(1, n + 1)[known]])
    row["entropy"] = distribution.entropy()
    row["gold_log_prob"] = -np.inf if known.any() else None
    if exists and known.all():
        row["gold_log_prob"] = float(distribution.log_prob(gold))
    elif exists and known.any():
        with contextlib.suppress(InfeasibleError):
            row["gold_log_prob"] = -float(distribution.partial_nll(gold)[0])
    return row


def totals(
    rows: Sequence[dict[str, Any]], *, resamples: int = 2000, rng: Seed = 0
) -> dict[str, Any]:
    """Return the scores over all words, and means over sentences.

    `sentences_without_heads` are those whose heads are all unknown; `mean_gold_log_prob` is over
    the others, without the `impossible_gold_trees`, whose probability is 0.
    The 95 percent intervals `uas_interval`, ... are those of a bootstrap over sentences.  A
    `UserWarning` says if no word is tagged PUNCT, so that uas_no_punct is uas.
    """
    result: dict[str, Any] = {"sentences": len(rows)}
    result |= {name: sum(row[name] for row in rows) for name in COUNTS}
    for name in (*MEASURES, "expected"):
        count = COUNTS[name.endswith("no_punct")]
        if all(name in row for row in rows) and result[count]:
            right = np.array([[(row[name] or 0.0) * row[count], row[count]] for row in rows])
            result[name] = float(right[:, 0].sum()) / result[count]
            if name in MEASURES:
                result[f"{name}_interval"] = ratio(right[:, 0], right[:, 1], resamples, rng)[1:]
    _warn_without_punctuation(*(result[name] for name in COUNTS))
    given = [row["gold_log_prob"] for row in rows if row["gold_log_prob"] is not None]
    possible = [value for value in given if value > -np.inf]
    result["sentences_without_heads"] = len(rows) - len(given)
    result["impossible_gold_trees"] = len(given) - len(possible)
    result["mean_gold_log_prob"] = float(np.mean(possible)) if possible else None
    result["mean_entropy"] = float(np.mean([row["entropy"] for row in rows]))
    return result


class AttachmentComparison(NamedTuple):
    """An attachment score of two parsers on the same words.

    first, second : the shares of right words, each with its 95 percent bootstrap interval.
    difference : second minus first, with its interval.
    p_value : two-sided, of a paired bootstrap over sentences, for no difference; at most 0.05 if,
        and only if, the interval of the difference excludes 0.
    """

    first: Interval
    second: Interval
    difference: Interval
    p_value: float


def compare_parsers(
    gold: Sequence[Sentence],
    first: Sequence[Sentence],
    second: Sequence[Sentence],
    *,
    universal: bool = False,
    resamples: int = 2000,
    rng: Seed = 0,
) -> dict[str, AttachmentComparison]:
    """Return the comparison of two parsers by uas, las, and both without words tagged PUNCT.

    The sentences of all three have the same words in the same order; gold words with an unknown
    head are left out, and las if all relations of one of them are "_".  `universal` is that of
    `sentence_scores`.  A `UserWarning` says if no gold word is tagged PUNCT.

    Raises
    ------
    InvalidInputError
        The numbers of sentences or the words differ, or no gold word has a known head.
    """
    if not len(gold) == len(first) == len(second):
        raise InvalidInputError(
            f"gold, first and second have {len(gold):,}, {len(first):,} and {len(second):,} "
            "sentences; give the same"
        )
    rows = np.array(
        [
            _right(sentence, parses, universal)
            for sentence, *parses in zip(gold, first, second, strict=True)
        ],
        dtype=np.float64,
    ).reshape(-1, 2, 5)
    check_heads("gold", gold)
    _warn_without_punctuation(*rows[..., 4].sum(axis=0).tolist())
    labeled = all(
        any(relation != "_" for sentence in parses for relation in sentence.relations)
        for parses in (gold, first, second)
    )
    found = {}
    for name in MEASURES:
        if name.startswith("las") and not labeled:
            continue
        counted = rows[:, int(name.endswith("no_punct"))]
        label = 2 * name.startswith("las")
        if counted[:, 4].any():
            sums = resampled_sums(counted[:, [label, label + 1, 4]], resamples, rng)
            one, two = ratios(sums[:, :2], sums[:, 2:]).T
            changed = int((counted[:, label] != counted[:, label + 1]).sum())
            found[name] = AttachmentComparison(
                interval(one), interval(two), *difference(two - one, changed)
            )
    return found


def check_heads(name: str, gold: Sequence[Sentence]) -> None:
    """Raise InvalidInputError, which names the sentences, if none of them has a known head."""
    if not any((sentence.heads != PADDING).any() for sentence in gold):
        raise InvalidInputError(
            f"no word of {name} has a known head; there is nothing to compare, unless column 7 "
            "(HEAD) has heads"
        )


def _right(gold: Sentence, parses: Sequence[Sentence], universal: bool) -> list[list[int]]:
    """Return (right heads of the first parse, of the second, also right relations, words).

    The first row counts all words, the second those that are not tagged PUNCT.
    """
    known = gold.heads != PADDING
    heads, both = [], []
    for parse in parses:
        if parse.forms != gold.forms:
            pairs = enumerate(zip_longest(gold.forms, parse.forms), start=1)
            i, (word, other) = next(row for row in pairs if row[1][0] != row[1][1])
            raise InvalidInputError(
                f"word {i} of sentence {gold.name} is {word!r}, and in a parse of it {other!r}; "
                "compare parses of the same words"
            )
        relations = [
            [_universal(r) if universal else r for r in own.relations] for own in (gold, parse)
        ]
        right = known & (parse.heads == gold.heads)
        heads.append(right)
        both.append(right & (np.array(relations[0]) == np.array(relations[1])))
    real = _not_punctuation(gold)
    columns = [*heads, *both, known]
    return [[int((column & mask).sum()) for column in columns] for mask in (known, known & real)]


def _not_punctuation(gold: Sentence) -> BoolArray:
    """Return which words (n,) are not tagged PUNCT, in upper or lower case."""
    return np.array([tag.upper() != PUNCTUATION for tag in gold.tags], dtype=bool)


def _warn_without_punctuation(words: float, words_no_punct: float) -> None:
    """Warn if scores of words and of those not tagged PUNCT count the same, because none is."""
    if words and words == words_no_punct:
        warn(
            f"no word of the gold that counts has the UPOS {PUNCTUATION}, so that uas_no_punct and "
            "las_no_punct leave nothing out; tag punctuation so in column 4",
            UserWarning,
        )


def json_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for JSON, which has no infinity: None if the gold tree is impossible."""
    value = row["gold_log_prob"]
    return row | {"gold_log_prob": None if value == -np.inf else value}


def check_length(distribution: TreeDistribution, name: str, n: int) -> None:
    """Raise if a table does not fit a sentence of n words."""
    if n + 1 != distribution.scores.shape[0]:
        raise InvalidInputError(
            f"sentence {name} has {n} words and its table {distribution.scores.shape}; "
            "the table must be (n+1, n+1)"
        )


def checked_names(distribution: TreeDistribution, names: Sequence[str] | None) -> list[str]:
    """Return the names of the label axis."""
    if names is None:
        raise InvalidInputError("the tables have labels; give their names with --labels")
    if len(names) != distribution.scores.shape[-1]:
        raise InvalidInputError(
            f"--labels names {len(names)} relations for a label axis of "
            f"{distribution.scores.shape[-1]}; name all, in order"
        )
    repeated = next((name for i, name in enumerate(names) if name in names[:i]), None)
    if repeated is not None:
        raise InvalidInputError(
            f"--labels names {repeated!r} more than once; name each relation once"
        )
    return list(names)


def _universal(relation: str) -> str:
    """Return the relation of Universal Dependencies that a relation refines."""
    return relation.partition(":")[0]


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None
