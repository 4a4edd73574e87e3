"""`fstgrad trees`: read score tables of sentences from npz files; write JSON lines and files."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
import numpy as np

from fstgrad.cli.command import Group, option_group, reject_options
from fstgrad.cli.output import echo, note, progress
from fstgrad.cli.parameter_types import (
    FILE,
    SEED,
    Number,
    Output,
    bootstrap_seed_option,
    draws_option,
    nbest_option,
    output_npz,
    resamples_option,
)
from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import FstgradError, InvalidInputError
from fstgrad.io import Items, matched, read_lines, write_npz, write_text
from fstgrad.trees import evaluation, treebank
from fstgrad.trees.distribution import TreeDistribution
from fstgrad.trees.projective import ProjectiveTrees
from fstgrad.trees.spanning import SpanningTrees
from fstgrad.trees.treebank import Scores, read_scores

_WRITE_SCORES = """python3 -c "import numpy; numpy.savez('scores.npz', s1=numpy.eye(4))\""""
_WRITE_TREEBANK = (
    r"printf '1\tGo\t_\tVERB\t_\t_\t0\troot\t_\t_\n2\t!\t_\tPUNCT\t_\t_\t1\tpunct\t_\t_\n\n'"
    " > gold.conllu"
)
_WRITE_TABLES = """python3 -c "import numpy; numpy.savez('scores.npz', s1=numpy.eye(3))\""""


@dataclasses.dataclass(frozen=True)
class TreeFamily:
    """Options that define which trees are possible."""

    single_root: bool
    projective: bool

    def __call__(self, table: FloatArray) -> TreeDistribution:
        """Return the distribution of a score table (n+1, n+1) or (n+1, n+1, labels)."""
        family = ProjectiveTrees if self.projective else SpanningTrees
        return family(table, single_root=self.single_root, labeled=table.ndim == 3)


family_options = option_group(
    "family",
    TreeFamily,
    click.option(
        "--single-root/--many-roots",
        default=True,
        show_default=True,
        help="Whether exactly one arc leaves the root, or at least one.",
    ),
    click.option("--projective", is_flag=True, help="Allow only trees without crossing arcs."),
    heading="Which trees",
)


@dataclasses.dataclass(frozen=True)
class Treebank:
    """Options of the treebank into which trees are written."""

    conllu: str | None
    labels: str | None

    def names(self, scores: Scores) -> list[str] | None:
        """Return the names of the labels; None without --labels."""
        if self.labels is None:
            return None
        if not any(table.ndim == 3 for table in scores.tables):
            reject_options(("labels",), "on tables without labels")
        return [name for line in read_lines(self.labels) for name in line.split()]


labels_option = click.option(
    "--labels", type=FILE, help="File with one relation per line, in the order of the labels."
)
treebank_options = option_group(
    "bank",
    Treebank,
    click.option(
        "--conllu",
        type=FILE,
        metavar="IN.conllu",
        help="Write the trees of these sentences to --output, as CoNLL-U.",
    ),
    labels_option,
    heading="Treebank",
)
output_conllu = click.option(
    "-o", "--output", type=Output(), metavar="OUT.conllu",
    help="Write the sentences of --conllu with their trees to this file.",
)  # fmt: skip
decode_option = click.option(
    "--decode", type=click.Choice(["map", "mbr"]), default="map", show_default=True,
    help="map: the most probable tree; mbr: the one with the most correct heads (and labels) in "
    "expectation.",
)  # fmt: skip

scores_argument = click.argument("scores", type=FILE, metavar="SCORES.npz")


@click.group(cls=Group)
def trees() -> None:
    """Spanning trees: marginals, entropy, decoding, sampling.

    SCORES.npz holds a table of log-weights for each sentence, with the root as word 0:
    score[head, dependent] or, with labels, score[head, dependent, label].  The name of a table is
    the sent_id of its sentence.  The file may also hold one padded array `scores` and the array
    `lengths`.
    """


@trees.command(examples=(_WRITE_SCORES, "fstgrad trees marginals scores.npz -o marginals.npz"))
@scores_argument
@family_options
@treebank_options
@click.option(
    "-o", "--output", type=Output(), metavar="FILE",
    help="Write the arc probabilities to this npz file; with --conllu, write CoNLL-U.",
)  # fmt: skip
def marginals(scores: str, family: TreeFamily, bank: Treebank, output: str | None) -> None:
    """Print log Z of every sentence in nats; write its arc probabilities to --output.

    With --conllu, --output is that file with the probability of each of its heads in MISC.
    """
    tables: dict[str, Any] = {}
    writer = TreebankWriter(scores, bank, output, arrays=True)

    def answer(distribution: TreeDistribution, name: str) -> dict[str, Any]:
        if bank.conllu is None:
            tables[name] = distribution.marginals()
        else:
            writer.add_confidences(distribution)
        return {"log_partition": distribution.log_partition()}

    for_each_sentence(writer.scores, family, answer)
    if bank.conllu is not None:
        writer.close()
    elif output is not None:
        write_npz(output, tables, compressed=True)


@trees.command(examples=(_WRITE_SCORES, "fstgrad trees entropy scores.npz"))
@scores_argument
@family_options
@click.option(
    "--order", type=Number(0, infinite=True), default=1.0, show_default=True,
    help="Order of the Renyi entropy: 1 is the Shannon entropy, 0 the log of the number of trees.",
)  # fmt: skip
@output_npz
def entropy(scores: str, family: TreeFamily, order: float, output: str | None) -> None:
    """Print the entropy of every sentence in nats; write its gradient to --output."""
    tables: dict[str, Any] = {}

    def answer(distribution: TreeDistribution, name: str) -> dict[str, Any]:
        value, tables[name] = distribution.renyi_and_gradient(order)
        return {"entropy": value}

    for_each_sentence(read_scores(scores), family, answer)
    if output is not None:
        write_npz(output, tables, compressed=True)


@trees.command(examples=(_WRITE_SCORES, "fstgrad trees decode scores.npz -k 2"))
@scores_argument
@family_options
@treebank_options
@nbest_option("Number of trees.", 1)
@decode_option
@output_conllu
def decode(
    scores: str, family: TreeFamily, bank: Treebank, nbest: int, decode: str, output: str | None
) -> None:
    """Print the best trees of every sentence: heads, labels and log-probabilities."""
    if decode == "mbr" and nbest > 1:
        raise click.UsageError("--decode mbr gives one tree; leave out --nbest")
    writer = TreebankWriter(scores, bank, output)

    def answer(distribution: TreeDistribution, _: str) -> dict[str, Any]:
        if decode == "mbr":
            tree = distribution.minimum_risk_tree()
            scored_trees = [(tree, float(distribution.log_prob(tree)))]
        else:
            scored_trees = distribution.kbest(nbest)
        writer.add_trees(distribution, [tree for tree, _ in scored_trees], "rank")
        return {
            "trees": [tree_lists(tree) | {"log_prob": log_prob} for tree, log_prob in scored_trees]
        }

    for_each_sentence(writer.scores, family, answer)
    writer.close()


@trees.command(examples=(_WRITE_SCORES, "fstgrad trees sample scores.npz -n 2 --seed 0"))
@scores_argument
@family_options
@treebank_options
@draws_option("Number of trees.", 1)
@click.option("--seed", type=SEED, help="Random seed.  [default: a new random seed]")
@click.option("--distinct", is_flag=True, help="Draw without replacement; not with --projective.")
@output_conllu
def sample(
    scores: str,
    family: TreeFamily,
    bank: Treebank,
    draws: int,
    seed: int | None,
    distinct: bool,
    output: str | None,
) -> None:
    """Draw exact samples from the tree distribution of every sentence."""
    rng = np.random.default_rng(seed)
    if distinct and family.projective:
        raise click.UsageError("--distinct is for spanning trees; leave out --projective")
    writer = TreebankWriter(scores, bank, output)

    def answer(distribution: TreeDistribution, _: str) -> dict[str, Any]:
        if distinct and isinstance(distribution, SpanningTrees):
            samples = [tree for tree, _ in distribution.sample_without_replacement(draws, rng)]
        else:
            samples = list(distribution.sample(draws, rng))
        log_probs = distribution.log_prob(np.array(samples))
        writer.add_trees(distribution, samples, "sample")
        return {
            "trees": [
                tree_lists(tree) | {"log_prob": float(log_prob)}
                for tree, log_prob in zip(samples, log_probs, strict=True)
            ]
        }

    for_each_sentence(writer.scores, family, answer)
    writer.close()


@trees.command(examples=(_WRITE_SCORES, "fstgrad trees kl scores.npz scores.npz"))
@scores_argument
@click.argument("other", type=FILE, metavar="OTHER.npz")
@family_options
def kl(scores: str, other: str, family: TreeFamily) -> None:
    """Print KL(p || q) of every sentence in nats; p is from SCORES.npz, q from OTHER.npz.

    The value is null if q forbids a tree that p allows, because the divergence is infinite.
    """
    tables = read_scores(scores)
    rivals = read_scores(other).in_order_of(tables.items())
    remaining = zip(rivals.names, rivals.tables, strict=True)

    def answer(distribution: TreeDistribution, _: str) -> dict[str, Any]:
        name, table = next(remaining)
        if table.shape != distribution.scores.shape:
            raise InvalidInputError(
                f"{name} of {other} has shape {table.shape}; it must be that of the same sentence "
                f"in {scores}, {distribution.scores.shape}"
            )
        value = distribution.kl(family(table))
        return {"kl": value if np.isfinite(value) else None}

    for_each_sentence(tables, family, answer)


@trees.command(
    examples=(
        _WRITE_TREEBANK,
        _WRITE_TABLES,
        "fstgrad trees evaluate gold.conllu --scores scores.npz",
    )
)
@click.argument("gold", type=FILE, metavar="GOLD.conllu")
@click.option("--scores", type=FILE, required=True, metavar="SCORES.npz", help="File of scores.")
@labels_option
@click.option(
    "--universal",
    is_flag=True,
    help="Compare relations up to their first colon: nsubj for nsubj:pass. Needs --labels.",
)
@decode_option
@resamples_option
@bootstrap_seed_option
@family_options
def evaluate(
    gold: str,
    scores: str,
    labels: str | None,
    universal: bool,
    decode: str,
    resamples: int,
    seed: int,
    family: TreeFamily,
) -> None:
    """Compare best trees with a treebank: attachment scores, probability of gold, entropy.

    The output is one line per sentence, then one line for all.  uas is the share of correct heads,
    las the share of words with the correct head and relation; both are also given without the words
    tagged PUNCT (UPOS), and for all sentences with the 95 percent interval of a bootstrap over
    sentences; a line on stderr says if no word is.  Words with the head _ are left out;
    gold_log_prob is that of all trees with the heads that are known, and null if none is.  A
    relation that --labels lacks is an error of the parser, and gold_log_prob is then null, too.
    `expected` is the expected uas over all trees.  Sentences without a known head, and those whose
    gold tree is none of the possible trees (several root arcs without --many-roots, crossing arcs
    with --projective), are counted, and left out of the mean log-probability.

    The names of the tables are the sent_ids of all sentences.  Without names (`scores` and
    `lengths`) or sent_ids, tables and sentences have the same order.
    """
    if universal and labels is None:
        raise click.UsageError("--universal compares relations; give their names with --labels")
    sentences = list(treebank.read_conllu(gold, partial=True))
    tables = in_order_of(read_scores(scores), sentence_items(gold, sentences))
    evaluation.check_heads(gold, sentences)
    names = Treebank(None, labels).names(tables)
    remaining = iter(sentences)
    rows: list[dict[str, Any]] = []

    def answer(distribution: TreeDistribution, _: str) -> dict[str, Any]:
        row = evaluation.sentence_scores(
            distribution, next(remaining), names, minimum_risk=decode == "mbr", universal=universal
        )
        rows.append(row)
        return evaluation.json_row(row)

    for_each_sentence(tables, family, answer)
    echo(json.dumps(evaluation.totals(rows, resamples=resamples, rng=seed)))


@trees.command(
    examples=(
        _WRITE_TREEBANK,
        "cp gold.conllu first.conllu; cp gold.conllu second.conllu",
        "fstgrad trees compare gold.conllu first.conllu second.conllu",
    )
)
@click.argument("gold", type=FILE, metavar="GOLD.conllu")
@click.argument("first", type=FILE, metavar="FIRST.conllu")
@click.argument("second", type=FILE, metavar="SECOND.conllu")
@click.option(
    "--universal",
    is_flag=True,
    help="Compare relations up to their first colon: nsubj for nsubj:pass.",
)
@resamples_option
@bootstrap_seed_option
def compare(gold: str, first: str, second: str, universal: bool, resamples: int, seed: int) -> None:
    """Compare the trees of two parsers, FIRST and SECOND, with a treebank; write one JSON line.

    uas, las, and both without words tagged PUNCT, have [value, lower, upper] for each parser, with
    a 95 percent interval of a bootstrap over sentences; a line on stderr says if no word of GOLD is
    PUNCT in UPOS.  The difference is SECOND minus FIRST: a positive one favours SECOND.  p_value is
    two-sided, of a paired bootstrap, for no difference.

    The parses have the words of GOLD, as fstgrad trees decode --conllu writes them; sentences match
    by sent_id, or by position without one.  las is left out if one of the files has no relations.
    Words with the head _ in GOLD are left out.  The arcs of a parse with a cycle of heads, which is
    no tree, count too, and so do words with the head _ in a parse, as wrong; a line on stderr says
    so.
    """
    sentences = list(treebank.read_conllu(gold, partial=True))
    wanted = sentence_items(gold, sentences)
    parses = []
    for path in (first, second):
        found = list(treebank.read_conllu(path, partial=True, cyclic=True))
        if cycles := [cycle for sentence in found if (cycle := treebank.cycle_of(sentence))]:
            shown = f"{path}: {len(cycles):,} of {len(found):,} parses are no trees"
            echo(f"fstgrad: {shown}; {cycles[0]}", err=True)
        parses.append([found[i] for i in matched(wanted, sentence_items(path, found))])
        _note_missing_heads(path, sentences, parses[-1])
    result = evaluation.compare_parsers(
        sentences, parses[0], parses[1], universal=universal, resamples=resamples, rng=seed
    )
    line: dict[str, Any] = {"sentences": len(sentences)}
    echo(json.dumps(line | {name: scores._asdict() for name, scores in result.items()}))


def _note_missing_heads(
    path: str, gold: Sequence[treebank.Sentence], parses: Sequence[treebank.Sentence]
) -> None:
    """Print how many words have a head in gold, but _ in their parse."""
    missing = [
        (sentence.name, word + 1)
        for sentence, parse in zip(gold, parses, strict=True)
        if len(parse.heads) == len(sentence.heads)
        for word in np.flatnonzero((parse.heads < 0) & (sentence.heads >= 0)).tolist()
    ]
    if missing:
        name, word = missing[0]
        count = f"{len(missing):,} {'words have' if len(missing) > 1 else 'word has'}"
        echo(
            f"fstgrad: {path}: {count} no head (_), which counts as wrong; the first is word "
            f"{word} of sentence {name}",
            err=True,
        )


class TreebankWriter:
    """Writes trees into the sentences of --conllu, in their order; `scores` are their tables.

    Without --conllu, it writes nothing.  With `arrays`, --output may then hold arrays instead.

    Raises
    ------
    click.UsageError
        --conllu, --labels and --output do not go together.
    """

    def __init__(
        self, scores: str, bank: Treebank, output: str | None, *, arrays: bool = False
    ) -> None:
        self.texts: list[str] = []
        self.output = output
        self.writes = bank.conllu is not None
        self.blocks: Iterator[treebank.Block] = iter(())
        self.scores = read_scores(scores)
        if bank.conllu is None:
            if bank.labels is not None:
                reject_options(("labels",), "without --conllu")
            if output is not None and not arrays:
                raise click.UsageError("--output needs --conllu, the sentences to write")
            return
        if output is None:
            raise click.UsageError("--conllu needs --output, the file for the trees")
        blocks = list(treebank.read_blocks(bank.conllu))
        sentences = [block for block in blocks if block.words]
        self.scores = in_order_of(self.scores, sentence_items(bank.conllu, sentences))
        self.names = bank.names(self.scores)
        self.blocks = iter(blocks)

    def add_trees(self, distribution: TreeDistribution, trees: list[IntArray], kind: str) -> None:
        """Add the sentence once per tree; several trees get comments "kind = 1", "kind = 2", ..."""
        if not self.writes:
            return
        block = self._next(distribution)
        for i, tree in enumerate(trees, start=1):
            heads = tree[:, 0] if distribution.labeled else tree
            relations = ["_"] * len(heads)  # those of the file are not predicted
            if distribution.labeled:
                names = evaluation.checked_names(distribution, self.names)
                relations = [names[label] for label in tree[:, 1]]
            comments = [f"{kind} = {i}"] if len(trees) > 1 else []
            self.texts.append(
                block.with_tree(
                    heads.tolist(), relations, _confidences(distribution, heads), comments
                )
            )

    def add_confidences(self, distribution: TreeDistribution) -> None:
        """Add the sentence with its own tree, and the probability of each of its heads."""
        block = self._next(distribution)
        heads = block.heads()
        n = len(heads)
        if any(head is None or head > n for head in heads):
            raise InvalidInputError(
                f"sentence {block.name} has words without a head in 0 .. {n}; use decode to "
                "find trees"
            )
        confidences = _confidences(distribution, np.array(heads, dtype=np.int64))
        self.texts.append(block.with_tree(None, None, confidences))

    def close(self) -> None:
        """Write the output, if there is one."""
        self.texts += [comments.with_tree(None) for comments in self.blocks]
        if self.writes and self.output is not None:
            write_text(self.output, "".join(self.texts))

    def _next(self, distribution: TreeDistribution) -> treebank.Block:
        block = next(self.blocks)
        while not block.words:
            self.texts.append(block.with_tree(None))
            block = next(self.blocks)
        evaluation.check_length(distribution, block.name, len(block.words))
        return block


def _confidences(distribution: TreeDistribution, heads: IntArray) -> list[float]:
    """Return the probability of the head of each word, whatever its label."""
    arcs = distribution.marginals()
    arcs = arcs.sum(axis=-1) if distribution.labeled else arcs
    confidences: list[float] = arcs[heads, np.arange(1, len(heads) + 1)].tolist()
    return confidences


def tree_lists(tree: IntArray) -> dict[str, list[int]]:
    """Return a tree as lists for JSON: heads, and labels if it has some."""
    if tree.ndim == 1:
        return {"heads": tree.tolist()}
    return {"heads": tree[:, 0].tolist(), "labels": tree[:, 1].tolist()}


def in_order_of(scores: Scores, items: Items) -> Scores:
    """Return the tables in the order of sentences; print that their names are not compared."""
    ordered = scores.in_order_of(items)
    if scores.are_named and set(items.names) == {None}:
        note(
            f"fstgrad: {items.file} has no sent_ids: the tables of {scores.path} are taken in order"
        )
    return ordered


def sentence_items(path: str, sentences: list[treebank.Block] | list[treebank.Sentence]) -> Items:
    """Return the sentences of a treebank, to be matched with tables."""
    return Items([sentence.sent_id for sentence in sentences], path, "sentence", "sent_id")


def for_each_sentence(
    scores: Scores, family: TreeFamily, answer: Callable[[TreeDistribution, str], dict[str, Any]]
) -> None:
    """Print a JSON line per sentence; an error names the sentence, and earlier lines remain."""
    pairs = list(zip(scores.names, scores.tables, strict=True))
    for name, table in progress(pairs, "sentences"):
        with _naming_sentence(scores.path, name):
            row = answer(family(table), name)
        echo(json.dumps({"id": name} | row))


@contextlib.contextmanager
def _naming_sentence(scores: str, name: str) -> Iterator[None]:
    try:
        yield
    except FstgradError as error:
        raise type(error)(f"{scores}, sentence {name}: {error}") from error
