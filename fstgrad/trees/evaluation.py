"""Attachment scores of a distribution against a treebank."""

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.trees.distribution import TreeDistribution
from fstgrad.trees.structures import PADDING
from fstgrad.trees.treebank import Sentence

PUNCTUATION = "PUNCT"
COUNTS = ("words", "words_no_punct")


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
    (several root arcs, crossing arcs) or the labels forbid them.  With `universal`, relations count
    up to their first colon, nsubj for nsubj:pass, and a relation not in `names` stands for its
    universal one.
    """
    n = len(sentence.heads)
    check_length(distribution, sentence.name, n)
    best = distribution.minimum_risk_tree() if minimum_risk else distribution.mode()
    known = sentence.heads != PADDING
    real = known & np.array([tag != PUNCTUATION for tag in sentence.tags], dtype=bool)
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
    row["gold_log_prob"] = -np.inf
    if exists and known.all():
        row["gold_log_prob"] = float(distribution.log_prob(gold))
    elif exists:
        with contextlib.suppress(InfeasibleError):
            row["gold_log_prob"] = -float(distribution.partial_nll(gold)[0])
    return row


def totals(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the scores over all words, and means over sentences."""
    result: dict[str, Any] = {"sentences": len(rows)}
    result |= {name: sum(row[name] for row in rows) for name in COUNTS}
    for name in ("uas", "uas_no_punct", "las", "las_no_punct", "expected"):
        count = COUNTS[name.endswith("no_punct")]
        if all(name in row for row in rows) and result[count]:
            result[name] = sum((row[name] or 0.0) * row[count] for row in rows) / result[count]
    possible = [row["gold_log_prob"] for row in rows if row["gold_log_prob"] > -np.inf]
    result["impossible_gold_trees"] = len(rows) - len(possible)
    result["mean_gold_log_prob"] = float(np.mean(possible)) if possible else None
    result["mean_entropy"] = float(np.mean([row["entropy"] for row in rows]))
    return result


def json_row(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row for JSON, which has no infinity: None if the gold tree is impossible."""
    return row | {
        "gold_log_prob": row["gold_log_prob"] if np.isfinite(row["gold_log_prob"]) else None
    }


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
    return list(names)


def _universal(relation: str) -> str:
    """Return the relation of Universal Dependencies that a relation refines."""
    return relation.partition(":")[0]


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None
