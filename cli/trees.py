"""`fstgrad trees`: score tables of sentences in npz files, results as JSON lines or npz."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Any

import click
import numpy as np

from fstgrad.checks import FloatArray, IntArray
from fstgrad.cli.border import COUNT, SEED, Input, Number
from fstgrad.cli.effects import without_effect
from fstgrad.cli.options import group, output_npz
from fstgrad.cli.report import progress
from fstgrad.cli.text import echo
from fstgrad.errors import FstgradError, InvalidInputError
from fstgrad.io import read_lines, write_npz
from fstgrad.trees import treebank
from fstgrad.trees.base import TreeDistribution
from fstgrad.trees.projective import ProjectiveTrees
from fstgrad.trees.spanning import SpanningTrees

FILE = Input()


@dataclasses.dataclass(frozen=True)
class Family:
    """Which trees there are."""

    single_root: bool
    projective: bool

    def __call__(self, table: FloatArray) -> TreeDistribution:
        """Return the distribution of one sentence."""
        family = ProjectiveTrees if self.projective else SpanningTrees
        return family(table, single_root=self.single_root, labeled=table.ndim == 3)


family_options = group(
    "family",
    Family,
    click.option(
        "--single-root/--many-roots",
        default=True,
        show_default=True,
        help="Exactly one arc leaves the root, or at least one.",
    ),
    click.option("--projective", is_flag=True, help="Only trees without crossing arcs."),
)

scores_argument = click.argument("scores", type=FILE, metavar="SCORES.npz")


@click.group()
def trees() -> None:
    """Spanning trees: marginals, entropy, decoding, sampling.

    SCORES.npz holds a table for each sentence, log-weights with the root at 0: score[head,
    dependent] or, with labels, score[head, dependent, label]; or one padded array `scores` beside
    `lengths`.
    """


@trees.command()
@scores_argument
@family_options
@output_npz
def marginals(scores: str, family: Family, output: str | None) -> None:
    """Print log Z of every sentence in nats; write its arc probabilities to --output."""
    tables: dict[str, Any] = {}

    def answer(distribution: TreeDistribution, name: str) -> dict[str, Any]:
        tables[name] = distribution.marginals()
        return {"log_partition": distribution.log_partition()}

    for_each(scores, family, answer)
    if output is not None:
        write_npz(output, tables, compressed=True)


@trees.command()
@scores_argument
@family_options
@click.option(
    "--order",
    type=Number(0, infinite=True),
    default=1.0,
    show_default=True,
    help="1: Shannon; else Renyi.",
)
@output_npz
def entropy(scores: str, family: Family, order: float, output: str | None) -> None:
    """Print the entropy of every sentence in nats; write its gradient to --output."""
    tables: dict[str, Any] = {}

    def answer(distribution: TreeDistribution, name: str) -> dict[str, Any]:
        value, tables[name] = distribution.renyi_and_gradient(order)
        return {"entropy": value}

    for_each(scores, family, answer)
    if output is not None:
        write_npz(output, tables, compressed=True)


@trees.command()
@scores_argument
@family_options
@click.option("-k", type=COUNT, default=1, show_default=True, help="How many trees.")
def decode(scores: str, family: Family, k: int) -> None:
    """Print the best trees of every sentence: heads, labels and log-probabilities."""

    def answer(distribution: TreeDistribution, _: str) -> dict[str, Any]:
        found = distribution.kbest(k)
        return {"trees": [shown(tree) | {"log_prob": log_prob} for tree, log_prob in found]}

    for_each(scores, family, answer)


@trees.command()
@scores_argument
@family_options
@click.option("-k", type=COUNT, default=1, show_default=True, help="How many trees.")
@click.option("--seed", type=SEED, help="Repeat a run.  [default: fresh entropy]")
@click.option("--distinct", is_flag=True, help="Draw without replacement; not with --projective.")
def sample(scores: str, family: Family, k: int, seed: int | None, distinct: bool) -> None:
    """Print trees of every sentence, drawn exactly."""
    rng = np.random.default_rng(seed)
    if distinct and family.projective:
        raise click.UsageError("--distinct is for spanning trees; leave out --projective")

    def answer(distribution: TreeDistribution, _: str) -> dict[str, Any]:
        if distinct and isinstance(distribution, SpanningTrees):
            found = [tree for tree, _ in distribution.sample_without_replacement(k, rng)]
        else:
            found = list(distribution.sample(k, rng))
        log_probs = distribution.log_prob(np.array(found))
        return {
            "trees": [
                shown(tree) | {"log_prob": float(log_prob)}
                for tree, log_prob in zip(found, log_probs, strict=True)
            ]
        }

    for_each(scores, family, answer)


@trees.command()
@scores_argument
@click.argument("other", type=FILE, metavar="OTHER.npz")
@family_options
def kl(scores: str, other: str, family: Family) -> None:
    """Print KL(p || q) of every sentence in nats, p from SCORES.npz and q from OTHER.npz.

    null where q forbids what p allows: the divergence is infinite.
    """
    rivals = treebank.read_scores(other)
    count = len(treebank.read_scores(scores))
    if len(rivals) != count:
        raise InvalidInputError(
            f"{scores} has {count} sentences and {other} has {len(rivals)}; give as many"
        )
    remaining = iter(rivals)

    def answer(distribution: TreeDistribution, _: str) -> dict[str, Any]:
        name, table = next(remaining)
        if table.shape != distribution.scores.shape:
            raise InvalidInputError(
                f"{name} of {other} has shape {table.shape}; it must be that of the same sentence "
                f"in {scores}, {distribution.scores.shape}"
            )
        value = distribution.kl(family(table))
        return {"kl": value if np.isfinite(value) else None}

    for_each(scores, family, answer)


@trees.command()
@click.argument("gold", type=FILE, metavar="GOLD.conllu")
@click.option("--scores", type=FILE, required=True, metavar="SCORES.npz", help="The tables.")
@click.option("--labels", type=FILE, help="A relation a line, in the order of the label axis.")
@family_options
def evaluate(gold: str, scores: str, labels: str | None, family: Family) -> None:
    """Compare best trees with a treebank: attachment scores, probability of gold, entropy.

    A line for each sentence, then one for all.  `expected` is the attachment score in the mean over
    the distribution.
    """
    sentences = list(treebank.read_conllu(gold))
    tables = treebank.read_scores(scores)
    if len(sentences) != len(tables):
        raise InvalidInputError(
            f"{gold} has {len(sentences)} sentences and {scores} has {len(tables)}; give as many"
        )
    names = None
    if labels is not None:
        if not any(table.ndim == 3 for _, table in tables):
            without_effect(("labels",), "on tables without labels")
        names = [name for line in read_lines(labels) for name in line.split()]
    remaining = iter(sentences)
    rows = []

    def answer(distribution: TreeDistribution, _: str) -> dict[str, Any]:
        row = compared(distribution, next(remaining), names)
        rows.append(row)
        return row

    for_each(scores, family, answer)
    words = sum(row["words"] for row in rows)
    total: dict[str, Any] = {"sentences": len(rows), "words": words}
    for name in ("unlabeled", "labeled", "expected"):
        if all(name in row for row in rows):
            total[name] = sum(row[name] * row["words"] for row in rows) / words
    for name in ("gold_log_prob", "entropy"):
        total[f"mean_{name}"] = sum(row[name] for row in rows) / len(rows)
    echo(json.dumps(total))


def compared(
    distribution: TreeDistribution, sentence: treebank.Sentence, names: list[str] | None
) -> dict[str, Any]:
    """Return the scores of one sentence against its gold tree."""
    n = len(sentence.heads)
    if n + 1 != distribution.scores.shape[0]:
        raise InvalidInputError(
            f"sentence {sentence.name} has {n} words and its table {distribution.scores.shape}; "
            "the table must be (n+1, n+1)"
        )
    best = distribution.mode()
    heads = best[:, 0] if distribution.labeled else best
    arcs = distribution.marginals()
    if distribution.labeled:
        arcs = arcs.sum(axis=-1)
    row: dict[str, Any] = {
        "sentence": sentence.name,
        "words": n,
        "unlabeled": float((heads == sentence.heads).mean()),
        "expected": float(arcs[sentence.heads, np.arange(1, n + 1)].mean()),
        "entropy": distribution.entropy(),
    }
    gold: IntArray = sentence.heads
    if distribution.labeled:
        if names is None:
            raise InvalidInputError("the tables have labels; give their names with --labels")
        unknown = sorted(set(sentence.relations) - set(names))
        if unknown or len(names) != distribution.scores.shape[-1]:
            raise InvalidInputError(
                f"--labels names {len(names)} relations for a label axis of "
                f"{distribution.scores.shape[-1]}, without {unknown} of sentence {sentence.name}; "
                "name all, in order"
            )
        gold = np.stack([gold, [names.index(r) for r in sentence.relations]], axis=-1)
        row["labeled"] = float((best == gold).all(axis=-1).mean())
    row["gold_log_prob"] = float(distribution.log_prob(gold))
    return row


def shown(tree: IntArray) -> dict[str, list[int]]:
    """Return a tree for JSON."""
    if tree.ndim == 1:
        return {"heads": tree.tolist()}
    return {"heads": tree[:, 0].tolist(), "labels": tree[:, 1].tolist()}


def for_each(
    scores: str, family: Family, answer: Callable[[TreeDistribution, str], dict[str, Any]]
) -> None:
    """Print a JSON line for each sentence; an error says whose it is, earlier lines stand."""
    for name, table in progress(treebank.read_scores(scores), "sentences"):
        with _named(scores, name):
            row = answer(family(table), name)
        echo(json.dumps({"id": name} | row))


@contextlib.contextmanager
def _named(scores: str, name: str) -> Iterator[None]:
    try:
        yield
    except FstgradError as error:
        raise type(error)(f"{scores}, sentence {name}: {error}") from error
