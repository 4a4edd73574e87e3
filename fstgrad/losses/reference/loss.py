"""Build B, the acceptor of the loss against one target: y has the weight e^L(y)."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from fstgrad import openfst
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InfeasibleError
from fstgrad.losses.automata.determinize import MAX_STATES
from fstgrad.losses.reference.determinization import determinized, too_many
from fstgrad.losses.reference.target_machine import EXACT, Target, hypothesis_machine
from fstgrad.losses.transducers import sigma_power
from fstgrad.openfst import Fst, FstArrays

_TOTAL_DECIMALS = 9  # totals -log u that agree to this precision share a state


def loss_acceptor(
    transducer: Fst | Sequence[Fst],
    alphabet: Alphabet,
    target: Target,
    length: int,
    *,
    smoothing: float = 0.0,
    log: bool = True,
    cap: float | None = None,
    prune: float | None = None,
    delta: float | None = None,
    max_states: int = MAX_STATES,
) -> Fst:
    """Return B: deterministic, acyclic, "log64"; the cost of y in Delta^l is -L(y).

    If U is "standard", L = U(y, y_i), and the weight u of an arc becomes e^u.  If U is "log64",
    L = -log U(y, y_i), and u becomes 1/u.  A y without a path in U has an infinite loss and no path
    in B.

    Parameters
    ----------
    transducer, alphabet, target, length
        As in `hypothesis_machine`.
    smoothing : float
        L = -log(U + smoothing), smoothing >= 0; "log64" only.
    log : bool
        If False, L = -U; "log64" only.
    cap : float, optional
        Replace L by min(L, cap), in nats.
    prune, delta, max_states
        As in `determinized`.

    Raises
    ------
    InfeasibleError
        No y of this length has a finite loss.
    StateLimitError
        B has more than `max_states` states.
    MemoryLimitError
        M could need more than 2 GiB.

    Notes
    -----
    The arcs of Det(M) carry factors of U(y, y_i).  A loss that is not -log of a product
    (`smoothing`, `log=False`, `cap` of a rational loss) needs the whole U(y, y_i) at the end, so
    states are split by the weight of their prefixes.  A cap of a tropical loss adds one path of
    cost `cap` for each y before determinization.
    """

    def loss(u: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            whole = -np.log(u + smoothing) if log else -u
        return whole if cap is None else np.minimum(whole, cap)

    try:
        machine = hypothesis_machine(transducer, alphabet, target, length)
    except InfeasibleError:
        if log and smoothing == 0:
            raise
        return _constant(alphabet, length, -float(loss(np.zeros(1))[0]))
    tropical = machine.arc_type() == "standard"
    if tropical and cap is not None:
        machine = _capped(machine, alphabet, length, cap)
    result = determinized(machine, max_states=max_states, delta=delta, prune=prune)
    if tropical or (log and smoothing == 0 and cap is None):
        acceptor = _inverted(result)
    else:
        arrays = openfst.to_arrays(result)
        acceptor = _split_by_total(arrays, len(alphabet), length, loss, max_states)
    if openfst.is_empty(acceptor):
        raise InfeasibleError(
            f"no hypothesis of length {length} has a finite loss; change length or give a cap"
        )
    return acceptor


def _inverted(machine: Fst) -> Fst:
    """Return the acceptor with reciprocal weights, in "log64"."""
    arrays = openfst.to_arrays(openfst.with_arc_type(machine, "log64"))
    final = np.where(np.isfinite(arrays.final), -arrays.final, np.inf)
    return openfst.from_arrays(replace(arrays, weight=-arrays.weight, final=final))


def _capped(machine: Fst, alphabet: Alphabet, length: int, cap: float) -> Fst:
    constant = _constant(alphabet, length, cap, arc_type="standard")
    return openfst.remove_epsilons(openfst.union(machine, constant), delta=EXACT)


def _constant(
    alphabet: Alphabet, length: int, cost: float, *, arc_type: openfst.ArcType = "log64"
) -> Fst:
    """Return the acceptor of Delta^l in which each string has the cost `cost`."""
    every = openfst.to_arrays(sigma_power(alphabet, length, arc_type=arc_type))
    return openfst.from_arrays(replace(every, final=every.final + cost))


def _split_by_total(
    machine: FstArrays,
    symbols: int,
    length: int,
    loss: Callable[[FloatArray], FloatArray],
    max_states: int,
) -> Fst:
    """Return the acceptor of Delta^l with states (state of Det(M), -log of the prefix's weight).

    One more state, which Det(M) does not have, collects the prefixes that it rejects: u = 0.  The
    final costs are -loss(u).
    """
    states = machine.num_states
    nextstate = np.full((states + 1, symbols), states)
    weight = np.full((states + 1, symbols), np.inf)
    nextstate[machine.source, machine.ilabel - 1] = machine.nextstate
    weight[machine.source, machine.ilabel - 1] = machine.weight
    state, total = np.array([machine.start if machine.start >= 0 else states]), np.zeros(1)
    first = 0  # index of the first state of the level in the result
    ends: list[tuple[IntArray, IntArray, IntArray]] = []
    for _ in range(length):
        nextstates, totals = nextstate[state].ravel(), (total[:, None] + weight[state]).ravel()
        keys = np.stack([nextstates, np.round(totals, _TOTAL_DECIMALS)])
        _, where, number = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        source, label = np.divmod(np.arange(nextstates.size), symbols)
        ends.append((source + first, label + 1, number.ravel() + first + len(state)))
        first += len(state)
        state, total = nextstates[where], totals[where]
        if first + len(state) > max_states:
            raise too_many(first + len(state), max_states)
    final = np.append(machine.final, np.inf)[state] + total
    cost = loss(np.exp(-final))
    final = np.where(np.isfinite(cost), -cost, np.inf)
    source, label, nextstate = (np.concatenate(column) for column in zip(*ends, strict=True))
    return openfst.connect(
        openfst.from_arrays(
            FstArrays(
                arc_type="log64",
                start=0,
                final=np.concatenate([np.full(first, np.inf), final]),
                source=source,
                ilabel=label,
                olabel=label,
                nextstate=nextstate,
                weight=np.zeros(len(source)),
            )
        )
    )
