"""Check a grammar against its examples, and update the losses of the examples in its file.

- `check_examples` : wrong examples, and the parts of the grammar that examples use or leave out.
- `updated` : the text of the file with the losses under the grammar.
"""

import ast
import difflib
import pathlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.errors import FstError
from fstgrad.costs import Explanation, PairTransducer, pair_transducer
from fstgrad.costs.explain import explain_pair
from fstgrad.costs.parameter_tying import ParameterTying
from fstgrad.grammars.loading import Grammar, RuleGrammar
from fstgrad.losses import RuleLoss, TransducerLoss
from fstgrad.openfst import connect

_TOLERANCE = 1e-6  # absolute; costs of a pynini grammar are float32


@dataclass(frozen=True)
class Checked:
    """An example and its result under the grammar.

    Attributes
    ----------
    y, target, expected : the hypothesis, the target and the loss of the example.
    value : the loss under the grammar.
    explanation : the two cheapest alignments.
    rivals : targets of other examples to which y has the same finite loss.
    """

    y: str
    target: str
    expected: float
    value: float
    explanation: Explanation
    rivals: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether the loss equals that of the example."""
        return self.value == self.expected or abs(self.value - self.expected) <= _TOLERANCE

    @property
    def is_ambiguous(self) -> bool:
        """Whether several alignments have the smallest cost."""
        return self.explanation.is_ambiguous


@dataclass(frozen=True)
class Coverage:
    """The parts of the transducer that the cheapest alignments of the examples use.

    Attributes
    ----------
    arcs, used_arcs : int, the numbers of all arcs and of used arcs.
    classes : (name, number of uses) of each rule, and of edits by kind and cost.
    unreachable : int, the number of states that are on no path from the start to a final state.
    undercut : (name, cost in nats) of each rule without effect, because edits do the same for less.
    """

    arcs: int
    used_arcs: int
    classes: tuple[tuple[str, int], ...]
    unreachable: int
    undercut: tuple[tuple[str, float], ...]

    @property
    def unused(self) -> list[str]:
        """The classes that no example uses."""
        return [name for name, count in self.classes if not count]


def check_examples(
    grammar: Grammar, alphabet: Alphabet | None = None
) -> tuple[TransducerLoss, list[Checked], Coverage]:
    """Return the loss of a grammar, its checked examples, and their coverage.

    Raises
    ------
    FstgradError
        The grammar cannot be built, or an example has a symbol outside the alphabet.
    """
    loss = grammar.loss(alphabet)
    transducer = pair_transducer(loss)
    targets = sorted({target for _, target, _ in grammar.examples})
    values = {
        y: {target: loss(_symbols(y, loss), _symbols(target, loss)) for target in targets}
        for y in sorted({y for y, _, _ in grammar.examples})
    }
    checked = [
        Checked(
            y,
            target,
            expected,
            values[y][target],
            explain_pair(transducer, _symbols(y, loss), _symbols(target, loss), 2),
            _rivals(values[y], target),
        )
        for y, target, expected in grammar.examples
    ]
    return loss, checked, _coverage(loss, transducer, checked)


def _rivals(values: dict[str, float], target: str) -> tuple[str, ...]:
    """Return the other targets of the same finite loss."""
    loss = values[target]
    return tuple(
        other
        for other, value in values.items()
        if other != target and np.isfinite(loss) and abs(value - loss) <= _TOLERANCE
    )


def _coverage(
    loss: TransducerLoss, transducer: PairTransducer, checked: Sequence[Checked]
) -> Coverage:
    events = np.zeros(len(transducer.cost), dtype=np.int64)
    for example in checked:
        for alignment in example.explanation.alignments[:1]:
            for step in alignment.operations:
                events[list(step.events)] += 1
    ties = ParameterTying.of(transducer, "cost", "nothing")
    used: Counter[str] = Counter()
    for k, event in zip(ties.class_of, ties.events, strict=True):
        if event < transducer.num_arcs and _is_rule_or_edit(
            transducer, int(event), isinstance(loss, RuleLoss)
        ):
            used[ties.names[k]] += int(events[event])
    if isinstance(loss, RuleLoss):
        used.update(dict.fromkeys(loss.rule_transducer.names, 0))
    states = sum(factor.num_states() for factor in loss.factors)
    on_paths = sum(connect(factor).num_states() for factor in loss.factors)
    return Coverage(
        transducer.num_arcs,
        int((events[: transducer.num_arcs] > 0).sum()),
        tuple(used.items()),
        states - on_paths,
        tuple(loss.rules.undercut.items()) if isinstance(loss, RuleLoss) else (),
    )


def _is_rule_or_edit(transducer: PairTransducer, event: int, is_rules: bool) -> bool:
    """Return whether an arc is a rule or an edit, not a free copy or a step within a rule."""
    if transducer.rule[event] >= 0 or transducer.cost[event] != 0:
        return True
    return not is_rules and bool(transducer.ilabel[event] != transducer.olabel[event])


def _symbols(text: str, loss: TransducerLoss) -> list[str]:
    return list(text) if loss.alphabet.is_characters else text.split()


def updated(grammar: Grammar, checked: Sequence[Checked]) -> tuple[str, str]:
    """Return the text of a grammar's file with updated losses, and the difference (unified diff).

    Only examples that are wrong get the loss under the grammar.  The file is not written.

    Raises
    ------
    FstError
        EXAMPLES of the file is not a list of literal rows (hypothesis, target, loss).
    """
    before = grammar.file.read_text(encoding="utf-8")
    if isinstance(grammar, RuleGrammar):
        after = _updated_rules(before, grammar, checked)
    else:
        after = _updated_module(before, grammar.file, checked)
    difference = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(grammar.file), "updated", n=0, lineterm=""
    )
    return after, "\n".join(difference)


def _updated_rules(text: str, grammar: RuleGrammar, checked: Sequence[Checked]) -> str:
    lines = text.splitlines(keepends=True)
    for row, example in zip(grammar.rules.examples, checked, strict=True):
        if not example.is_right:
            line = lines[row.line - 1]
            body = line.rstrip()
            ending = line[len(body) :]
            lines[row.line - 1] = f"{body.rpartition(' ')[0]} {example.value:.9g}{ending}"
    return "".join(lines)


def _updated_module(text: str, file: pathlib.Path, checked: Sequence[Checked]) -> str:
    rows = _example_rows(ast.parse(text), file)
    if len(rows) != len(checked):
        raise FstError(f"{file}: EXAMPLES has {len(checked)} rows and {len(rows)} literal ones")
    if not all(map(_is_row_of, rows, checked)):  # for example, the builder has its own examples
        raise FstError(f"{file}: EXAMPLES has other rows than those of the grammar; update by hand")
    lines = text.encode("utf-8").splitlines(keepends=True)
    changes = [
        (row.elts[2], example.value)
        for row, example in zip(rows, checked, strict=True)
        if not example.is_right
    ]
    # replace from the end, so that earlier positions stay valid; column offsets count bytes
    for node, value in sorted(changes, key=lambda c: (-c[0].lineno, -c[0].col_offset)):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head = lines[first][: node.col_offset]
        tail = lines[last][node.end_col_offset :]
        lines[first : last + 1] = [head + _literal(value).encode() + tail]
    return b"".join(lines).decode("utf-8")


def _is_row_of(row: ast.Tuple, example: Checked) -> bool:
    """Whether a row has the strings of an example, or strings that are not written out."""
    try:
        return [ast.literal_eval(cell) for cell in row.elts[:2]] == [example.y, example.target]
    except ValueError:
        return True


def _example_rows(tree: ast.Module, file: pathlib.Path) -> list[ast.Tuple]:
    """Return the rows in the assignment to EXAMPLES."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(t, ast.Name) and t.id == "EXAMPLES" for t in targets):
            value = node.value if isinstance(node, ast.Assign) else None
            rows = value.elts if isinstance(value, ast.List | ast.Tuple) else []
            triples = [row for row in rows if isinstance(row, ast.Tuple) and len(row.elts) == 3]
            if len(triples) == len(rows):
                return triples
    raise FstError(
        f"{file}: EXAMPLES is not a list of rows (hypothesis, target, loss) written out; update "
        "it by hand"
    )


def _literal(value: float) -> str:
    return 'float("inf")' if value == float("inf") else repr(float(f"{value:.9g}"))
