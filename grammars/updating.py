"""Update the losses of the examples in a grammar's file; the rest of the file is unchanged."""

import ast
import difflib
import pathlib
from collections.abc import Sequence

from fstgrad.core.errors import FstError
from fstgrad.grammars.checking import Checked
from fstgrad.grammars.loading import Grammar, RuleGrammar


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
    rows = _rows(ast.parse(text), file)
    if len(rows) != len(checked):
        raise FstError(f"{file}: EXAMPLES has {len(checked)} rows and {len(rows)} literal ones")
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


def _rows(tree: ast.Module, file: pathlib.Path) -> list[ast.Tuple]:
    """Return the rows in the assignment to EXAMPLES."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(t, ast.Name) and t.id == "EXAMPLES" for t in targets):
            value = node.value if isinstance(node, ast.Assign) else None
            rows = value.elts if isinstance(value, ast.List | ast.Tuple) else []
            found = [row for row in rows if isinstance(row, ast.Tuple) and len(row.elts) == 3]
            if len(found) == len(rows):
                return found
    raise FstError(
        f"{file}: EXAMPLES is not a list of rows (hypothesis, target, loss) written out; update "
        "it by hand"
    )


def _literal(value: float) -> str:
    return 'float("inf")' if value == float("inf") else repr(float(f"{value:.9g}"))
