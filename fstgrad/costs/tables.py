"""Write learned costs as a table that people can read and edit; read the table back."""

import difflib
import os
import re
from collections.abc import Iterable
from typing import NamedTuple, cast

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray
from fstgrad.core.errors import InvalidInputError, RowError
from fstgrad.costs.parameter_tying import TIES, Given, ParameterTying, Tie
from fstgrad.costs.transducer import PairTransducer, TransducerSource, pair_transducer
from fstgrad.io import Row, located, read_rows, to_number, write_text
from fstgrad.losses import TransducerLoss

_COLUMNS = ("state", "given", "class", "cost", "was", "count", "prior", "total", "arcs", "gate")
_HEADER = re.compile(r"# costs in nats, tie=(\w+) given=(\w+)")


class CostRow(NamedTuple):
    """The events of one class in one group.

    Attributes
    ----------
    state : int, the state that they leave.
    given : str, the symbol on which they are conditional, or "".
    name : str, the class.
    cost : float, the cost of each event, in nats.
    was : float, this cost before learning, in nats; `fit_costs` first makes the transducer's own
        costs -log of probabilities.
    times : float, the expected number of times that the events happened.
    prior : float, the pseudocounts added to `times`.
    total : float, the counts and pseudocounts of all alternatives, the rows of the same group.
    size : float, the number of the events.
    gate : float
        The probability of reading (or of not reading) the given side in this state; 1 in a joint
        model.

    If EM has converged and the class is in no other group, cost = -log((times + prior) / total) +
    log(size) - log(gate).
    """

    state: int
    given: str
    name: str
    cost: float
    was: float
    times: float
    prior: float
    total: float
    size: float
    gate: float


def rows_of(
    transducer: PairTransducer,
    ties: ParameterTying,
    cost: FloatArray,
    was: FloatArray,
    counts: FloatArray,
    prior: FloatArray,
) -> list[CostRow]:
    """Return one row for each class of each group, sorted by state and given symbol.

    `counts` (A + S,) are those of events, `prior` (cells,) those of cells.
    """
    _, first = np.unique(ties.cell, return_index=True)
    times = np.bincount(ties.cell, counts[ties.events])
    total = np.bincount(ties.cell_group, times + prior)[ties.cell_group]
    gate = np.ones(len(total))
    if ties.given != "nothing":
        gate = np.bincount(ties.group, np.exp(-cost[ties.events]))[ties.cell_group].astype(float)
    symbols = ("", *transducer.alphabet)
    rows = []
    for place, *own in zip(first, times, prior, total, ties.cell_size, gate, strict=True):
        event, given = int(ties.events[place]), ""
        is_arc = event < transducer.num_arcs
        state = int(transducer.source[event]) if is_arc else event - transducer.num_arcs
        if is_arc and ties.given != "nothing":
            side = transducer.ilabel if ties.given == "hypothesis" else transducer.olabel
            given = symbols[side[event]]
        name = ties.names[ties.class_of[place]]
        rows.append(
            CostRow(
                state,
                given,
                name,
                float(cost[event]) + 0.0,
                float(was[event]) + 0.0,  # + 0.0 avoids -0.0
                *map(float, own),
            )
        )
    return rows


def write_costs(
    path: str | os.PathLike[str], ties: ParameterTying, rows: Iterable[CostRow]
) -> None:
    """Write rows as TSV for people to read and edit; a cost of inf leaves the arcs out."""
    lines = [
        f"# costs in nats, tie={ties.tie} given={ties.given}; edit the column cost; a class has a "
        "row for each state and given symbol; total: counts and priors of all alternatives there; "
        "arcs: those that share the probability; gate: the probability of using up the given side, "
        "or not; cost = -log((count + prior) / total) + log arcs - log gate, roughly if the class "
        "has several rows",
        "\t".join(_COLUMNS),
    ]
    for row in rows:
        numbers = (f"{value:.6g}" for value in row[4:])
        fields = (str(row.state), row.given, row.name, f"{row.cost:.9g}", *numbers)
        lines.append("\t".join(fields))
    write_text(path, "\n".join(lines) + "\n")


def with_costs(
    source: TransducerSource, path: str | os.PathLike[str], alphabet: Alphabet | None = None
) -> TransducerLoss:
    """Return the loss of a transducer with the costs of a table that its fit wrote.

    Parameters
    ----------
    source, alphabet
        The same as when `fit_costs` learned the costs.
    path : path
        A TSV that `CostFit.write` wrote; the column `cost` (nats) may be edited.  Classes without a
        row have the cost inf.

    Raises
    ------
    InvalidInputError
        The file is not such a table, or its `tie` was a function.
    RowError
        A row is malformed, names no class of the transducer, or has a class again.
    """
    transducer = pair_transducer(source, alphabet)
    rows = list(read_rows(path))
    header = _HEADER.match(rows[0].raw.decode("utf-8", "replace")) if rows else None
    if header is None or header[1] not in TIES:
        raise InvalidInputError(
            f"{path}: not a table of learned costs; its first line must be "
            "'# costs in nats, tie=... given=...', with a tie that has a name"
        )
    ties = ParameterTying.of(transducer, cast(Tie, header[1]), cast(Given, header[2]))
    none, no_prior = np.zeros(len(transducer.cost)), np.zeros(len(ties.cell_class))
    cells = rows_of(transducer, ties, transducer.cost, transducer.cost, none, no_prior)
    number = {(str(row.state), row.given, row.name): k for k, row in enumerate(cells)}
    cost = np.full(len(cells), np.inf)
    seen: set[int] = set()
    for row in rows[2:]:
        with located(row):
            k, value = _cell_and_cost(row, number)
            if k in seen:
                raise RowError("the class has a row before; keep one of them")
            seen.add(k)
            cost[k] = value
    events = np.full(len(transducer.cost), np.inf)
    events[ties.events] = cost[ties.cell]
    return TransducerLoss(transducer.to_rules(events), transducer.alphabet)


def _cell_and_cost(row: Row, number: dict[tuple[str, str, str], int]) -> tuple[int, float]:
    """Return the index of the cell and the cost of a row, in nats."""
    fields = row.columns(_COLUMNS)
    key = (fields[0], fields[1], fields[2])
    if key not in number:
        names = [name for state, given, name in number if (state, given) == key[:2]]
        near = ", ".join(difflib.get_close_matches(key[2], names)) or "another grammar?"
        raise RowError(f"{key[2]!r} is not a class of state {key[0]}; did you mean {near}")
    try:
        value = to_number(fields[3])
    except ValueError as error:
        raise RowError(f"cost is {fields[3]!r}; give a number of nats") from error
    if np.isnan(value) or value == -np.inf:
        raise RowError(f"cost is {fields[3]!r}; give a number of nats, or inf")
    return number[key], value
