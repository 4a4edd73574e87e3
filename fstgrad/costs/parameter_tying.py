"""Parameter tying: which events of a transducer share a weight, and which weights sum to 1.

An event is an arc, or the end of a path in a state.  Events of one class share one weight theta (a
cost in nats).  Events of one group are alternatives, exactly one of which happens:

    log p(e) = -theta[class] - log sum over the group of exp(-theta) [ + log gate ].

Joint model, p(x, y): the alternatives are all arcs that leave a state, and ending there.
Conditional model, p(y | x): a gate first decides whether the state writes without reading.  If not,
the alternatives are the arcs that read the next symbol of x, or ending at the end of x.  So the sum
over y of p(y | x) is 1 if every state reads every symbol and may end, and at most 1 otherwise.

Sources: Ristad and Yianilos (1998) for the joint model of an edit distance; Oncina and Sebban
(2006) for the conditional model; Eisner (2002) and Berg-Kirkpatrick et al. (2010) for classes in
several groups.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray, one_of
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.short_repr import short_repr
from fstgrad.costs.transducer import PairTransducer
from fstgrad.losses.transducers.rules import CONTINUED, CONTINUED_NAME

Given = Literal["nothing", "hypothesis", "target"]
Tie = Literal["arc", "pair", "cost", "rule"] | Callable[[str, str, float], Hashable]
TIES = ("arc", "pair", "cost", "rule")
END = "(end)"  # unlikely as the name of a rule


@dataclass(frozen=True)
class ParameterTying:
    """Classes, groups and gates of the events of a transducer.

    Attributes
    ----------
    names : (K,) tuple of str, the names of the classes.
    class_of : (E,) int64, the class of each event that can happen.
    events : (E,) int64, the events that can happen (of finite cost), ascending.
    group : (E,) int64, the group of each event, 0 .. G - 1.
    gate : (E,) int64, 2 s + 1 for arcs from state s that read nothing of the given side, 2 s for
        other events of s; -1 if nothing is given.
    given : str, the side on which the probabilities are conditional.
    tie : str, the property that events of one class share; "function" for a callable.
    """

    names: tuple[str, ...]
    class_of: IntArray
    events: IntArray
    group: IntArray
    gate: IntArray
    given: Given
    tie: str

    __repr__ = short_repr

    @classmethod
    def of(cls, transducer: PairTransducer, tie: Tie, given: Given) -> "ParameterTying":
        """Return the ties of a transducer; `tie` and `given` are those of `fit_costs`.

        Raises
        ------
        InvalidInputError
            `tie` or `given` is unknown, or "rule" if no arc names a rule.
        """
        one_of("given", given, ("nothing", "hypothesis", "target"))
        events = np.flatnonzero(np.isfinite(transducer.cost))
        keys = _class_keys(transducer, tie, events)
        number: dict[Hashable, int] = {}
        class_of = np.array([number.setdefault(key, len(number)) for key in keys])
        arcs = transducer.num_arcs
        state = np.concatenate([transducer.source, np.arange(transducer.num_states)])[events]
        if given == "nothing":
            read = np.zeros(len(events), dtype=np.int64)
            gate = np.full(len(events), -1)
        else:
            side = transducer.ilabel if given == "hypothesis" else transducer.olabel
            read = np.append(side, np.full(transducer.num_states, len(transducer.alphabet) + 1))[
                events
            ]
            gate = 2 * state + (read == 0) * (events < arcs)
        group_key = state * (len(transducer.alphabet) + 2) + read
        _, group = np.unique(group_key, return_inverse=True)
        tie_name = tie if isinstance(tie, str) else "function"
        names = tuple(name if isinstance(name, str) else repr(name) for name in number)
        return cls(names, class_of, events, group.astype(np.int64), gate, given, tie_name)

    @cached_property
    def cell(self) -> IntArray:
        """The cell (group, class) of each event (E,)."""
        return np.unique(self._cell_key, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def cell_group(self) -> IntArray:
        """The group of each cell."""
        return np.unique(self._cell_key) // len(self.names)

    @cached_property
    def cell_class(self) -> IntArray:
        """The class of each cell."""
        return np.unique(self._cell_key) % len(self.names)

    @cached_property
    def cell_size(self) -> IntArray:
        """The number of events of each cell."""
        return np.bincount(self.cell)

    @cached_property
    def has_shared_classes(self) -> bool:
        """Whether a class is in several groups, so that its weight has no closed form."""
        return len(self.cell_class) > len(self.names)

    def log_cells(self, theta: FloatArray) -> FloatArray:
        """Return the log-probability of each cell within its group, for costs theta (K,).

        log p(cell) = log size - theta[class] - log sum of size exp(-theta) over the group's cells.
        """
        log_weight = np.log(self.cell_size) - theta[self.cell_class]
        top = np.full(int(self.group.max()) + 1, -np.inf)
        np.maximum.at(top, self.cell_group, log_weight)
        top[np.isneginf(top)] = 0.0
        total = np.bincount(self.cell_group, np.exp(log_weight - top[self.cell_group]))
        with np.errstate(divide="ignore"):
            log_total = np.where(total > 0, top + np.log(total), 0.0)
        return log_weight - log_total[self.cell_group]

    def log_weights(self, theta: FloatArray, log_gate: FloatArray, size: int) -> FloatArray:
        """Return the log-probabilities (size,) of all events; -inf for impossible ones."""
        log_cell = self.log_cells(theta) - np.log(self.cell_size)
        weight = np.full(size, -np.inf)
        weight[self.events] = log_cell[self.cell]
        if self.given != "nothing":
            weight[self.events] += log_gate[self.gate]
        return weight

    @property
    def _cell_key(self) -> IntArray:
        return self.group * len(self.names) + self.class_of


def gates(
    ties: ParameterTying, counts: FloatArray, smoothing: float, before: FloatArray
) -> FloatArray:
    """Return the log-probabilities (2 S,) of the gates from the counts (E,) of the events.

    Each side gets its share of the counts plus `smoothing`.  If only one side has events, its
    probability is 1.  Gates without counts keep their values in `before` (2 S,).
    """
    if not len(before):
        return before
    exists = np.bincount(ties.gate, minlength=len(before)).reshape(-1, 2) > 0
    mass = np.bincount(ties.gate, counts, minlength=len(before)).reshape(-1, 2)
    mass = np.where(exists, mass + smoothing, 0.0)
    total = mass.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_gate = np.log(mass) - np.log(total)
    return np.where(total > 0, log_gate, before.reshape(-1, 2)).ravel()


def _class_keys(transducer: PairTransducer, tie: Tie, events: IntArray) -> Sequence[Hashable]:
    """Return a key for each event; events with equal keys form a class."""
    if not callable(tie) and not (isinstance(tie, str) and tie in TIES):
        raise InvalidInputError(
            f"tie is {tie!r}; choose one of {', '.join(TIES)}, or give a function of what an arc "
            "reads, what it writes and its cost"
        )
    if tie == "rule" and not (transducer.rule >= 0).any():
        raise InvalidInputError(
            "tie is 'rule', and no arc of the transducer names a rule; give a grammar of rules, "
            "or tie='cost'"
        )
    return [_class_key(transducer, tie, int(event)) for event in events]


def _class_key(transducer: PairTransducer, tie: Tie, event: int) -> Hashable:
    if event >= transducer.num_arcs:
        return END if tie != "arc" else f"{END} in {event - transducer.num_arcs}"
    symbols = ("", *transducer.alphabet)
    read, written = symbols[transducer.ilabel[event]], symbols[transducer.olabel[event]]
    cost = float(transducer.cost[event])
    rule = int(transducer.rule[event])
    if callable(tie):
        try:
            return tie(read, written, cost)
        except TypeError as error:
            raise InvalidInputError(
                f"tie({read!r}, {written!r}, {cost!r}) failed: {error}; it is called with what an "
                "arc reads, what it writes and its cost"
            ) from error
    name = f"{read or '0'} -> {written or '0'}"
    if tie in ("rule", "cost"):
        kind = f"{edit_kind(read, written)} {cost:g}"
        return CONTINUED_NAME if rule == CONTINUED else kind if rule < 0 else transducer.rules[rule]
    if rule == CONTINUED:
        name = f"{CONTINUED_NAME} {name}"
    elif rule >= 0:
        is_single = transducer.pairs_of_rules[rule] == 1
        name = transducer.rules[rule] + ("" if is_single else f" ({name})")
    if tie == "pair":
        return name
    return f"{name} from {transducer.source[event]} to {transducer.nextstate[event]} ({event})"


def edit_kind(read: str, written: str) -> str:
    """Return the kind of an arc: copy, substitute, delete, insert or silent."""
    if read and written:
        return "copy" if read == written else "substitute"
    return "delete" if read else "insert" if written else "silent"
