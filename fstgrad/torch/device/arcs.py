"""Sums over the arcs that enter a state, without atomics, and their adjoints.

At each position, a state s and a symbol lead to at most one state `nextstate`.  The sums over all s
that lead to one state use padded tables of WIDTH entries: a state that more arcs enter gets several
rows, which a further table adds up.  So tables have few empty entries, and the order of a sum is
fixed.  The adjoint of the sum reads the entry of the target of each arc.

Values are (B, n, S): items, symbols, states.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import torch

from fstgrad.core.checks import IntArray
from fstgrad.torch.arrays import to_device
from fstgrad.torch.device.sums import Weights, finite, is_used

Packed = TypeVar("Packed")
_PACKED: WeakKeyDictionary[Any, dict[Any, Any]] = WeakKeyDictionary()
RECENT = 16  # batches that begin with one automaton and stay on their device
WIDTH = 4  # a power of two; in automata of edit distances, most states are entered by few arcs


class Arcs(NamedTuple):
    """The arcs of one position.

    classes : (B, n), the class of each symbol.
    target : (B, C, S), the state to which a state and a class lead, -1 for none.
    tables : (B, C, R, W), the states whose sum is a row, then the rows whose sum is a row of the
        next table; the rows of the last one are the targets.
    """

    classes: torch.Tensor
    target: torch.Tensor
    tables: tuple[torch.Tensor, ...]

    def by_symbol(self, table: torch.Tensor) -> torch.Tensor:
        """Return (B, n, ...) of (B, C, ...)."""
        items = torch.arange(len(table), device=table.device)
        return table[items[:, None], self.classes]

    def reduced(self, values: torch.Tensor, *, is_log: bool) -> torch.Tensor:
        """Return the sums over the tables, log-sums if `is_log`; not differentiable."""
        for table in self.tables:
            index = self.by_symbol(table)
            if is_log:
                values = _entries(values, index, -torch.inf).logsumexp(-1)
            else:
                values = _entries(values, index, 0.0).sum(-1)
        return values


def packed(nextstate: IntArray, classes: torch.Tensor, states: int) -> Arcs:
    """Return the arcs of nextstate (B, C, S), which lead to 0 .. states - 1, or nowhere if -1."""
    device = classes.device
    tables: list[torch.Tensor] = []
    target: IntArray | None = nextstate
    while target is not None:
        table, target = _rows(target, states)
        tables.append(to_device(table, device))
    return Arcs(classes, to_device(nextstate, device), tuple(tables))


def recent(owners: Sequence[Any], key: Any, pack: Callable[[], Packed]) -> Packed:
    """Return pack(), or what it returned lately for the same automata and key.

    It stays on its device as long as the automata live.
    """
    batches = _PACKED.setdefault(owners[0], {})
    known, batch = batches.pop(key, ((), None))
    same = [ref() for ref in known] == list(owners)  # they compare by identity
    packed_batch: Packed = batch if batch is not None and same else pack()
    batches[key] = [weakref.ref(owner) for owner in owners], packed_batch
    if len(batches) > RECENT:
        del batches[next(iter(batches))]
    return packed_batch


def sum_tables(target: IntArray, states: int, device: torch.device, first: int = 0) -> Arcs:
    """Return tables for the sums of values (1, 1, N) whose targets (A,) are 0 .. states - 1.

    `first` is the place of the first of these A values; -1 is no target.  There is no adjoint.
    """
    classes = torch.zeros(1, 1, dtype=torch.int64, device=device)
    arcs = packed(target[None, None], classes, states)
    table = torch.where(arcs.tables[0] < 0, -1, arcs.tables[0] + first)
    return Arcs(classes, classes, (table, *arcs.tables[1:]))


def _rows(target: IntArray, states: int) -> tuple[IntArray, IntArray | None]:
    """Return a table (B, C, R, W) and the targets (B, C, R) of its rows, None if R is `states`."""
    items, classes, size = target.shape
    group = np.arange(items * classes).repeat(size)
    alive = np.flatnonzero(target.ravel() >= 0)
    key = group[alive] * states + target.ravel()[alive]
    order = np.argsort(key, kind="stable")
    key, source = key[order], alive[order] % size
    counts = np.bincount(key, minlength=items * classes * states)
    rank = np.arange(len(key)) - (np.cumsum(counts) - counts)[key]
    if counts.max(initial=0) <= WIDTH:
        table = np.full((items * classes * states, WIDTH), -1)
        table[key, rank] = source
        return table.reshape(items, classes, states, WIDTH), None
    number = (-(-counts // WIDTH)).reshape(-1, states)  # of rows for each state
    first = (np.cumsum(number, axis=1) - number).ravel()
    most = int(number.sum(axis=1).max())
    row = key // states * most + first[key] + rank // WIDTH
    table = np.full((items * classes * most, WIDTH), -1)
    table[row, rank % WIDTH] = source
    leads = np.full(items * classes * most, -1)
    leads[row] = key % states
    shape = (items, classes, most)
    return table.reshape(*shape, WIDTH), leads.reshape(shape)


def log_sums(weights: Weights, arcs: Arcs) -> Weights:
    """Return the log of the sum of exp(weights) over the arcs into each state, and its tangent."""
    values, *tangents = weights
    result: torch.Tensor = _LogSums.apply(values, *arcs)  # type: ignore[no-untyped-call]
    if not tangents:
        return (result,)
    into = at_target(result, arcs)
    exists = (values > -torch.inf) & (into > -torch.inf)
    shares = torch.where(exists, values - torch.where(exists, into, 0.0), -torch.inf).exp()
    return result, sums(shares * torch.where(exists, tangents[0], 0.0), arcs)


def sums(values: torch.Tensor, arcs: Arcs) -> torch.Tensor:
    """Return the sum over the arcs into each state."""
    result: torch.Tensor = _Sums.apply(values, *arcs)  # type: ignore[no-untyped-call]
    return result


def at_target(values: torch.Tensor, arcs: Arcs) -> torch.Tensor:
    """Return for each arc the value of its target, 0 if it has none."""
    result: torch.Tensor = _AtTarget.apply(values, *arcs)  # type: ignore[no-untyped-call]
    return result


class _LogSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, *given: Any) -> torch.Tensor:
        ctx.arcs = Arcs(*given)
        result: torch.Tensor = ctx.arcs.reduced(values, is_log=True)
        ctx.save_for_backward(values, result)
        return result

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        values, result = ctx.saved_tensors
        weights, into = (at_target(table, ctx.arcs) for table in (upstream[0], finite(result)))
        arrives = ctx.arcs.by_symbol(ctx.arcs.target) >= 0
        shares = torch.where(arrives & is_used(weights, into), values - into, -torch.inf).exp()
        return shares * weights, None, None, None


class _Sums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, *given: Any) -> torch.Tensor:
        ctx.arcs = Arcs(*given)
        total: torch.Tensor = ctx.arcs.reduced(values, is_log=False)
        return total

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return at_target(upstream[0], ctx.arcs), None, None, None


class _AtTarget(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, *given: Any) -> torch.Tensor:
        ctx.arcs = Arcs(*given)
        return _entries(values, ctx.arcs.by_symbol(ctx.arcs.target), 0.0)

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return sums(upstream[0], ctx.arcs), None, None, None


def _entries(values: torch.Tensor, index: torch.Tensor, missing: float) -> torch.Tensor:
    """Return values (B, n, S) at an index (B, n, ...), and `missing` where it is -1."""
    read = values.gather(2, index.clamp_min(0).flatten(2)).reshape(index.shape)
    return torch.where(index < 0, missing, read)
