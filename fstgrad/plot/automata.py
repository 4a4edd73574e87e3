"""Draw transducers and loss automata with graphviz's program dot.

All arcs between two states share one edge, whose symbols are grouped by cost: "a, c, t / 1" means
three arcs of cost 1.  An arrow marks the start; a final state has a double circle and its cost.
"""

import math
import shutil
import subprocess
from collections import defaultdict
from typing import Any

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import instance, one_of, positive_integer
from fstgrad.core.errors import FstgradError, InvalidInputError, MissingDependencyError
from fstgrad.openfst import FstArrays, to_arrays
from fstgrad.openfst.conversion import check_fst
from fstgrad.plot.theme import theme_of

EMPTY = "ε"
MAX_EDGES = 400
_PER_LINE = 8  # symbols on one line of a label
_PER_LINE_OF_LOOP = 2  # dot keeps no room for wide labels of loops beside each other
_MOST_SYMBOLS = 24  # symbols shown for one cost; the rest is counted
_MOST_COSTS = 6  # costs shown for one edge


def automaton_source(
    machine: Any,
    alphabet: Alphabet | None = None,
    *,
    title: str = "",
    max_edges: int = MAX_EDGES,
    dark: bool = False,
) -> str:
    """Return an automaton as text in the DOT language.

    Parameters
    ----------
    machine : LossAutomaton, FstArrays or pynini.Fst
        A loss automaton is shown with its losses in nats, an FST with its costs.
    alphabet : Alphabet, optional
        The names of labels: label i + 1 is symbol i.  The default is the alphabet of the machine,
        else the symbol tables of the FST, else the labels.
    title : str
        The text above the drawing.
    max_edges : int
        The most pairs of states with an arc.
    dark : bool
        Whether to draw on black.

    Raises
    ------
    InvalidInputError
        The machine has more than `max_edges` such pairs, which would be unreadable.

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
            f"the machine has arcs between {len(edges):,} pairs of states, more than max_edges="
            f"{max_edges}; draw a shorter target or fewer symbols"
        )
    theme = theme_of(dark)
    lines = [
        "digraph {",
        f'  graph [rankdir=LR, bgcolor="{theme.background}", fontname="Helvetica", '
        f'fontcolor="{theme.foreground}", label={_quoted(title)}, labelloc=t, nodesep=0.45, '
        "ranksep=0.5];",
        f'  node [shape=circle, fontname="Helvetica", fontsize=11, width=0.35, fixedsize=false, '
        f'margin=0.03, color="{theme.foreground}", fontcolor="{theme.foreground}"];',
        f'  edge [fontname="Helvetica", fontsize=10, arrowsize=0.6, color="{theme.strong}", '
        f'fontcolor="{theme.foreground}"];',
        '  start [shape=point, style=invis, width=0, height=0, label=""];',
    ]
    for state, cost in enumerate(arrays.final):
        if math.isfinite(cost):
            shown = f"{state}" if cost == 0 else f"{state}\n{_number(sign * cost)}"
            lines.append(f"  {state} [shape=doublecircle, label={_quoted(shown)}];")
    if arrays.start >= 0:
        lines.append(f"  start -> {arrays.start};")
    for (source, nextstate), costs in edges.items():
        is_narrow = source == nextstate and arrays.num_states > 1
        label = _label(costs, _PER_LINE_OF_LOOP if is_narrow else _PER_LINE)
        lines.append(f"  {source} -> {nextstate} [label={_quoted(label)}];")
    return "\n".join([*lines, "}", ""])


def automaton_svg(
    machine: Any,
    alphabet: Alphabet | None = None,
    *,
    title: str = "",
    max_edges: int = MAX_EDGES,
    dark: bool = False,
) -> str:
    """Return the drawing of an automaton as SVG text; parameters as in `automaton_source`.

    Raises
    ------
    InvalidInputError
        As in `automaton_source`.
    MissingDependencyError
        The program dot of graphviz is not installed.
    """
    source = automaton_source(machine, alphabet, title=title, max_edges=max_edges, dark=dark)
    return render(source, "svg").decode()


def render(source: str, form: str) -> bytes:
    """Return the drawing of DOT text by the program dot, in bytes.

    Parameters
    ----------
    source : str
        DOT text, as `automaton_source` returns it.
    form : {"svg", "pdf", "png"}

    Raises
    ------
    MissingDependencyError
        The program is not installed.
    FstgradError
        The program rejects the text.
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
    """Return the arrays, and the sign of the shown numbers: -1 for a loss automaton."""
    if isinstance(machine, FstArrays):
        return machine, 1.0
    if hasattr(machine, "to_arrays"):
        found: FstArrays = machine.to_arrays()
        return found, -1.0
    check_fst(machine, "machine")
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


def _label(costs: dict[float, list[str]], per_line: int) -> str:
    """Return the label of an edge: one line or more for each cost, in increasing order."""
    lines = []
    for cost in sorted(costs)[:_MOST_COSTS]:
        symbols = costs[cost]
        shown = _runs(symbols) if len(symbols) > _PER_LINE else symbols
        rest = len(shown) - _MOST_SYMBOLS
        shown = [*shown[:_MOST_SYMBOLS], *([f"… {rest} more"] if rest > 0 else [])]
        rows = [", ".join(shown[i : i + per_line]) for i in range(0, len(shown), per_line)]
        lines.append("\n".join(rows) + ("" if cost == 0 else f" / {_number(cost)}"))
    if len(costs) > _MOST_COSTS:
        lines.append(f"… {len(costs) - _MOST_COSTS} more costs")
    return "\n".join(lines)


def _runs(symbols: list[str]) -> list[str]:
    """Return the symbols with runs of more than three consecutive characters shortened: a–e."""
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
