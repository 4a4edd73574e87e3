"""Transducers and loss automata, drawn by graphviz's program dot.

Between two states there is one edge; its symbols are grouped by cost, so that "a, c, t / 1" are
three arcs.  The start has an arrow of its own, final states have a double rim and their cost.
"""

import math
import shutil
import subprocess
from collections import defaultdict
from typing import Any

from fstgrad.alphabet import Alphabet
from fstgrad.checks import instance, one_of, positive_integer
from fstgrad.errors import FstgradError, InvalidInputError, MissingDependencyError
from fstgrad.openfst import FstArrays, to_arrays
from fstgrad.plot.look import look

EMPTY = "ε"
MAX_EDGES = 400
_PER_LINE = 8  # symbols on one line of a label
_MOST_SYMBOLS = 24  # of one cost; the others are counted
_MOST_COSTS = 6


def automaton_source(
    machine: Any,
    alphabet: Alphabet | None = None,
    *,
    title: str = "",
    max_edges: int = MAX_EDGES,
    dark: bool = False,
) -> str:
    """Return a machine as text of the DOT language.

    Parameters
    ----------
    machine : LossAutomaton, FstArrays or pynini.Fst
        A loss automaton is shown with its losses in nats, an FST with its costs.
    alphabet : Alphabet, optional
        Label i + 1 is symbol i; the default are the symbol tables of the FST, or its labels.
    max_edges : int
        Pairs of states with an arc, at most.

    Raises
    ------
    InvalidInputError
        The machine has more edges than that; the drawing would be unreadable.

    Examples
    --------
    >>> import fstgrad as fg
    >>> b = fg.Hamming(fg.Alphabet("ab")).compile("ab")
    >>> print(fg.plot.automaton_source(b).count("->"))  # the start's arrow, and two pairs of states
    3
    """
    instance("title", title, str, "a str")
    max_edges = positive_integer("max_edges", max_edges)
    if alphabet is not None:
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
    arrays, sign = _arrays(machine)
    inputs, outputs = _names(machine, arrays, alphabet)
    edges = _edges(arrays, sign, inputs, outputs)
    if len(edges) > max_edges:
        raise InvalidInputError(
            f"the machine has {len(edges):,} pairs of states with an arc, too many to read (at "
            f"most {max_edges}); draw a shorter target or fewer symbols"
        )
    chosen = look(dark)
    lines = [
        "digraph {",
        f'  graph [rankdir=LR, bgcolor="{chosen.paper}", fontname="Helvetica", '
        f'fontcolor="{chosen.ink}", label={_quoted(title)}, labelloc=t, nodesep=0.45, '
        "ranksep=0.5];",
        f'  node [shape=circle, fontname="Helvetica", fontsize=11, width=0.35, fixedsize=false, '
        f'margin=0.03, color="{chosen.ink}", fontcolor="{chosen.ink}"];',
        f'  edge [fontname="Helvetica", fontsize=10, arrowsize=0.6, color="{chosen.strong}", '
        f'fontcolor="{chosen.ink}"];',
        '  start [shape=point, style=invis, width=0, height=0, label=""];',
    ]
    for state, cost in enumerate(arrays.final):
        if math.isfinite(cost):
            shown = f"{state}" if cost == 0 else f"{state}\n{_number(sign * cost)}"
            lines.append(f"  {state} [shape=doublecircle, label={_quoted(shown)}];")
    if arrays.start >= 0:
        lines.append(f"  start -> {arrays.start};")
    for (source, nextstate), costs in edges.items():
        lines.append(f"  {source} -> {nextstate} [label={_quoted(_label(costs))}];")
    return "\n".join([*lines, "}", ""])


def automaton_svg(
    machine: Any,
    alphabet: Alphabet | None = None,
    *,
    title: str = "",
    max_edges: int = MAX_EDGES,
    dark: bool = False,
) -> str:
    """Return a machine as SVG, as `automaton_source` describes it.

    Raises
    ------
    MissingDependencyError
        The program dot of graphviz is not installed.
    """
    source = automaton_source(machine, alphabet, title=title, max_edges=max_edges, dark=dark)
    return render(source, "svg").decode()


def render(source: str, form: str) -> bytes:
    """Return what the program dot makes of DOT text: "svg", "pdf" or "png".

    Raises
    ------
    MissingDependencyError
        The program is not installed.
    FstgradError
        It refuses the text.
    """
    one_of("form", form, ("svg", "pdf", "png"))
    instance("source", source, str, "DOT text")
    program = shutil.which("dot")
    if program is None:
        raise MissingDependencyError(
            f"{form.upper()} needs the program dot of graphviz, which is not installed (apt "
            "install graphviz, brew install graphviz, conda install graphviz); or write DOT text"
        )
    done = subprocess.run(
        [program, f"-T{form}", "-Gdpi=110"] if form == "png" else [program, f"-T{form}"],
        input=source.encode("utf-8", "replace"),
        capture_output=True,
        check=False,
    )
    if done.returncode != 0:
        raise FstgradError(f"dot failed: {done.stderr.decode(errors='replace')}")
    return done.stdout


def _arrays(machine: Any) -> tuple[FstArrays, float]:
    """Return the arrays, and -1 where their weights are minus what is shown."""
    if isinstance(machine, FstArrays):
        return machine, 1.0
    if hasattr(machine, "to_arrays"):
        found: FstArrays = machine.to_arrays()
        return found, -1.0
    return to_arrays(machine), 1.0


def _names(
    machine: Any, arrays: FstArrays, alphabet: Alphabet | None
) -> tuple[dict[int, str], dict[int, str]]:
    symbols = alphabet if alphabet is not None else getattr(machine, "alphabet", None)
    if symbols is not None:
        table = {i + 1: symbol for i, symbol in enumerate(symbols.symbols)}
        return table, table
    return dict(arrays.input_symbols or ()), dict(arrays.output_symbols or ())


def _edges(
    arrays: FstArrays, sign: float, inputs: dict[int, str], outputs: dict[int, str]
) -> dict[tuple[int, int], dict[float, list[str]]]:
    """Return {(source, nextstate): {cost: labels}}."""
    edges: dict[tuple[int, int], dict[float, list[str]]] = defaultdict(lambda: defaultdict(list))
    for source, ilabel, olabel, nextstate, weight in zip(
        arrays.source.tolist(), arrays.ilabel.tolist(), arrays.olabel.tolist(),
        arrays.nextstate.tolist(), arrays.weight.tolist(), strict=True,
    ):  # fmt: skip
        given, made = _symbol(ilabel, inputs), _symbol(olabel, outputs)
        label = given if given == made else f"{given}:{made}"
        edges[source, nextstate][round(sign * weight, 9) + 0.0].append(label)
    return edges


def _symbol(label: int, names: dict[int, str]) -> str:
    return EMPTY if label == 0 else names.get(label, str(label))


def _label(costs: dict[float, list[str]]) -> str:
    """Return the label of an edge: a line or more for every cost, the smallest cost first."""
    lines = []
    for cost in sorted(costs)[:_MOST_COSTS]:
        symbols = costs[cost]
        shown = _runs(symbols) if len(symbols) > _PER_LINE else symbols
        rest = len(shown) - _MOST_SYMBOLS
        shown = [*shown[:_MOST_SYMBOLS], *([f"… {rest} more"] if rest > 0 else [])]
        rows = [", ".join(shown[i : i + _PER_LINE]) for i in range(0, len(shown), _PER_LINE)]
        lines.append("\n".join(rows) + ("" if cost == 0 else f" / {_number(cost)}"))
    if len(costs) > _MOST_COSTS:
        lines.append(f"… {len(costs) - _MOST_COSTS} more costs")
    return "\n".join(lines)


def _runs(symbols: list[str]) -> list[str]:
    """Return the symbols with runs of single letters in a row shortened: a–e."""
    found: list[list[str]] = []
    for symbol in symbols:
        last = found[-1] if found else None
        if last and len(symbol) == len(last[-1]) == 1 and ord(symbol) == ord(last[-1]) + 1:
            last.append(symbol)
        else:
            found.append([symbol])
    return [part for run in found for part in ([f"{run[0]}–{run[-1]}"] if len(run) > 3 else run)]


def _number(cost: float) -> str:
    return f"{cost:.4g}"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
