"""The UAI file format: models (.uai), evidence (.evid) and results (PR, MAR, MAP).

A model file has the word MARKOV or BAYES, the number of variables, the number of values of each,
the number of factors and their scopes, and then their tables of values (not logarithms), last
variable fastest.  Each scope begins with its number of variables, each table with its number of
values.  Comments run from # to the end of a line.  Source: the UAI 2014 inference competition,
"File formats".
"""

import math
import os
import warnings
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.core.uninitialized import empty
from fstgrad.io import INTEGER, read_lines, shown, to_number, write_text
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.mrf.factors import Factor
from fstgrad.mrf.scored_graph import score_tables

PathLike = str | os.PathLike[str]
LOG10 = float(np.log(10.0))
_DIGITS = 18
_ROUNDED = 0.01  # printed probabilities sum to 1 within this


class Model(NamedTuple):
    """A parsed .uai file.

    kind : "MARKOV" or "BAYES".  sizes : (I,) int64, the number of values of each variable.
    factors : scopes and log-tables (natural logarithms).
    """

    kind: str
    sizes: IntArray
    factors: list[Factor]

    def __repr__(self) -> str:
        return short_repr(self)

    def to_mrf(self) -> PairwiseMRF:
        """Return the random field with the same distribution; see `PairwiseMRF.from_factors`."""
        return PairwiseMRF.from_factors(self.sizes, self.factors)


class _Tokens:
    """The words of a file, with line numbers for error messages; `left` words remain."""

    def __init__(self, path: PathLike) -> None:
        self.path = Path(path)
        # pyAgrum writes the names of variables as comments
        self.lines = [line.split("#")[0].split() for line in read_lines(self.path)]
        self.left = sum(map(len, self.lines))
        self.words = self._words()
        self.line = 0

    def _words(self) -> Iterator[tuple[int, str]]:
        for number, line in enumerate(self.lines, start=1):
            for word in line:
                yield number, word

    def fail(self, message: str) -> InvalidInputError:
        """Return an error that names the line of the last word that was read."""
        line = f", line {self.line}" if self.line else ""
        return InvalidInputError(f"{self.path}{line}: {message}")

    def word(self, what: str) -> str:
        """Return the next word; `what` says in an error what should come."""
        self.line, word = next(self.words, (self.line, ""))
        self.left -= 1
        if not word:
            ends = "the file ends" if self.line else "the file is empty; it ends"
            raise self.fail(f"{ends} where {what} should come")
        return word

    def integer(self, what: str, low: int, high: int | None = None) -> int:
        """Return the next word as an integer in [low, high)."""
        word = self.word(what)
        if not INTEGER.fullmatch(word):
            raise self.fail(f"{what} is {shown(word)}; give an integer")
        value = int(word[:_DIGITS])
        if len(word) > _DIGITS:
            raise self.fail(f"{what} has {len(word)} digits; give an integer below 10^{_DIGITS}")
        if value < low or (high is not None and value >= high):
            bound = f"in {low} .. {high - 1}" if high is not None else f">= {low}"
            raise self.fail(f"{what} is {value}; it must be {bound}")
        return value

    def numbers(self, count: int, what: str) -> FloatArray:
        """Return the next `count` words as finite floats >= 0, (count,)."""
        if count > self.left:
            raise self.fail(f"{what} has {count:,} values; the file has {self.left:,} words left")
        values = empty(count)
        for k in range(count):
            word = self.word(what)
            try:
                values[k] = to_number(word)
            except ValueError:
                raise self.fail(f"{what} has the value {word!r}; give a number") from None
            if not 0 <= values[k] < np.inf:
                raise self.fail(f"{what} has the value {word}; give a finite number >= 0")
        return values

    def end(self) -> None:
        """Raise InvalidInputError if words remain."""
        self.line, word = next(self.words, (self.line, ""))
        if word:
            raise self.fail(f"{word!r} comes after the last value; remove it")


def read_model(path: PathLike) -> Model:
    """Read a .uai file; an InvalidInputError names the line of the error.

    The tables of a BAYES file are used as they are.  A UserWarning says why they are no network, in
    which Z = 1: the first table that has no probabilities of its last variable, the first variable
    that is not the last of exactly one scope, a cycle of parents.
    """
    tokens = _Tokens(path)
    kind = tokens.word("MARKOV or BAYES")
    if kind not in ("MARKOV", "BAYES"):
        raise tokens.fail(f"the file starts with {kind!r}; it must start with MARKOV or BAYES")
    variables = tokens.integer("the number of variables", 1)
    sizes = [tokens.integer(f"the size of variable {v}", 1) for v in range(variables)]
    scopes: list[list[int]] = []
    for f in range(tokens.integer("the number of factors", 0)):
        arity = tokens.integer(f"the number of variables of factor {f}", 0, variables + 1)
        scope = [tokens.integer(f"a variable of factor {f}", 0, variables) for _ in range(arity)]
        if len(set(scope)) < arity:
            raise tokens.fail(f"factor {f} names a variable twice: {scope}")
        scopes.append(scope)
    factors, wrong_sum = [], ""
    for f, scope in enumerate(scopes):
        shape = tuple(sizes[v] for v in scope)
        cells = math.prod(shape)
        count = tokens.integer(f"the number of values of factor {f}", 0)
        if count != cells:
            raise tokens.fail(
                f"factor {f} announces {count} values; its scope {scope} has {cells} states"
            )
        values = tokens.numbers(cells, f"factor {f}").reshape(shape)
        if kind == "BAYES" and not wrong_sum:
            wrong_sum = _unlike_probabilities(f, scope, values)
        with np.errstate(divide="ignore"):
            factors.append(Factor(scope, np.log(values)))
    tokens.end()
    structure = _unlike_network(variables, scopes) if kind == "BAYES" else []
    if faults := [wrong_sum] * bool(wrong_sum) + structure:
        warnings.warn(
            f"{tokens.path}: {'; '.join(faults)}; in a BAYES file each variable has one table, as "
            "the last of its scope (the child), its values fastest, and there is no cycle; for "
            "other factors, write MARKOV",
            UserWarning,
            stacklevel=2,
        )
    return Model(kind, np.array(sizes), factors)


def _unlike_probabilities(f: int, scope: list[int], values: FloatArray) -> str:
    """Return what is unusual in a table of a BAYES file, "" if it is conditional probabilities."""
    sums = values.sum(axis=-1).ravel() if scope else values.ravel()
    worst = float(sums[np.argmax(np.abs(sums - 1.0))])
    if abs(worst - 1.0) <= _ROUNDED:
        return ""
    if not scope:
        return f"factor {f}, over no variable, is {worst:g}, not 1"
    return (
        f"the probabilities of variable {scope[-1]}, the last of factor {f}, sum to {worst:g} for "
        "a value of the others, not to 1"
    )


def _unlike_network(variables: int, scopes: list[list[int]]) -> list[str]:
    """Return what parts the scopes of a BAYES file from a network: tables, a cycle of parents."""
    faults: list[str] = []
    tables: list[list[int]] = [[] for _ in range(variables)]
    for f, scope in enumerate(scopes):
        for child in scope[-1:]:
            tables[child].append(f)
    for v in [v for v in range(variables) if not tables[v]][:1]:
        faults.append(f"variable {v} is the last of no factor and has no table")
    for v in [v for v in range(variables) if len(tables[v]) > 1][:1]:
        faults.append(f"variable {v} is the last of factors {tables[v][0]} and {tables[v][1]}")
    parents = {v: [u for f in tables[v] for u in scopes[f][:-1]] for v in range(variables)}
    try:
        TopologicalSorter(parents).prepare()
    except CycleError as error:
        cycle = ", ".join(map(str, error.args[1][:10]))
        faults.append(f"each of the variables {cycle} is a parent of the next, in a cycle")
    return faults


def read_evidence(path: PathLike, sizes: IntArray) -> dict[int, int]:
    """Read a .evid file: the number of observed variables, then pairs of variable and value.

    In the older format of the competitions of 2008 and 2010, the number of samples comes first, on
    a line of its own.

    Returns the value of each observed variable; sizes (I,) are the numbers of values.  Raises
    InvalidInputError for an index out of range, a contradiction, several samples, or a file that
    has a number too much or too few in one format and is right in the other.
    """
    tokens = _Tokens(path)
    samples = _number_of_samples(tokens)
    if samples is not None and tokens.integer("the number of samples", 0) > 1:
        raise tokens.fail(
            f"the file has {samples} samples; give one sample in each file, on one line"
        )
    if samples == 0:
        return {}
    evidence: dict[int, int] = {}
    for _ in range(tokens.integer("the number of observed variables", 0, len(sizes) + 1)):
        v = tokens.integer("an observed variable", 0, len(sizes))
        value = tokens.integer(f"the value of variable {v}", 0, int(sizes[v]))
        if evidence.setdefault(v, value) != value:
            raise tokens.fail(f"variable {v} is observed as {evidence[v]} and as {value}")
    tokens.end()
    return evidence


def _number_of_samples(tokens: _Tokens) -> int | None:
    """Return the number of samples of the older format, None for the newer one.

    The number has a line of its own, and each sample has one.  A single sample may be broken into
    lines in other ways, as its number of words is even, and odd in the newer format.
    """
    first, *samples = [line for line in tokens.lines if line] or [[]]
    is_older = all(line[0] == str(len(line) // 2) and len(line) % 2 for line in samples)
    if is_older and first == [str(len(samples))]:
        return len(samples)
    words = [word for line in tokens.lines for word in line]
    observed = len(words) // 2 - 1
    if len(words) % 2 or words[:2] != ["1", str(observed)]:
        return None
    if observed < 2:  # one number too much or too few in the newer format
        older, newer = " ".join(words[1:]), " ".join([*words, "VALUE"][:3])
        raise tokens.fail(
            f"{shown(' '.join(words))} begins with a number of samples or of observed variables; "
            f"write {shown(older)} in the first case, {shown(newer)} in the second"
        )
    return 1


def write_model(path: PathLike, model: PairwiseMRF) -> None:
    """Write a model as .uai, one factor for each node, edge and larger factor, in full precision.

    The offset of the score becomes a factor over no variable.  Raises InvalidInputError if
    exp(score) of a finite score is 0 or inf.
    """
    sizes, factors = model.labels_per_node.tolist(), list(score_tables(model))
    if model.offset != 0.0:
        factors.append(([], np.array(model.offset)))
    lines = ["MARKOV", str(len(sizes)), " ".join(map(str, sizes)), str(len(factors))]
    lines += [" ".join(map(str, [len(scope), *scope])) for scope, _ in factors]
    for _, table in factors:
        with np.errstate(over="ignore"):  # inf is an error below
            values = np.exp(table).ravel()
        if not np.isfinite(values).all() or (np.isfinite(table).ravel() & (values == 0)).any():
            raise InvalidInputError(
                "a score is outside the range of a file of weights, exp(score) = 0 or inf; "
                "subtract a constant from its table first"
            )
        lines += [str(values.size), " ".join(f"{value!r}" for value in values.tolist())]
    write_text(path, "\n".join(lines) + "\n")


def write_evidence(path: PathLike, evidence: Mapping[int, int]) -> None:
    """Write a .evid file."""
    words = [str(len(evidence))] + [f"{v} {value}" for v, value in sorted(evidence.items())]
    write_text(path, " ".join(words) + "\n")


def format_partition(log_partition: float) -> str:
    """Return a PR result, log10 Z in 12 significant digits, from log Z in nats."""
    return f"PR\n{log_partition / LOG10:.12g}\n"


def format_marginals(node: FloatArray, sizes: IntArray) -> str:
    """Return a MAR result, six significant digits, from marginals (I, C) and sizes (I,)."""
    words = [str(len(sizes))]
    for row, size in zip(node, sizes.tolist(), strict=True):
        words += [str(size), *(f"{p:.6g}" for p in row[:size])]
    return "MAR\n" + " ".join(words) + "\n"


def format_mode(labels: IntArray) -> str:
    """Return a MAP result: the label of every variable, from labels (I,)."""
    return "MAP\n" + " ".join(map(str, [len(labels), *labels.tolist()])) + "\n"
