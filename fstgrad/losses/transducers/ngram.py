"""Counters of n-grams: whole, of several orders, with gaps, with mismatches."""

from collections.abc import Sequence

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import positive_integer, positive_number, real_array
from fstgrad.core.errors import InvalidInputError
from fstgrad.losses.transducers.builder import (
    EPSILON_LABEL,
    ArcGroup,
    FstBuilder,
    final_at,
    labels,
    machine,
)
from fstgrad.openfst import ArcType, FstArrays

_MOST_ARCS = 10_000_000


@FstBuilder
def ngram_counter(alphabet: Alphabet, order: int, *, arc_type: ArcType = "log64") -> FstArrays:
    """Return T_n, which maps y to each of its n-grams u with the weight c_u(y).

    c_u(y) is the number of occurrences of u in y.  In the log semiring, the paths of (y, u), one
    for each occurrence, sum to the cost -log c_u(y).  The n-gram similarity is the composition
    U = T_n o T_n^-1, U(y, y') = sum_u c_u(y) c_u(y').

    The states are 0 .. n; n is final.  States 0 and n skip any symbol (a:eps); state s < n copies
    one (a:a) and leads to s + 1.  All costs are 0.  There are n + 1 states and (n + 2) |alphabet|
    arcs (Figure 1 of Cortes et al. 2018 shows n = 2).

    Parameters
    ----------
    alphabet : Alphabet
    order : int
        The length n >= 1 of an n-gram.
    arc_type : {"log64", "log", "standard"}
        Counts need a log semiring; "standard" only tells whether u occurs.

    Raises
    ------
    InvalidInputError
        `order` is below 1, or the counter would have more than about 10 million arcs.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> counter = ngram_counter(Alphabet("ab"), 2)
    >>> counter.num_states(), sum(counter.num_arcs(state) for state in counter.states())
    (3, 8)
    """
    label = labels(alphabet)
    _check_size("order", order, 2 * len(label))
    state = np.arange(order)[:, None]
    ends = np.array([[0], [order]])
    return machine(
        arc_type,
        final_at(order + 1, order),
        [
            ArcGroup(ends, label, EPSILON_LABEL, 0.0, ends),
            ArcGroup(state, label, label, 0.0, state + 1),
        ],
    )


@FstBuilder
def ngrams_counter(
    alphabet: Alphabet,
    max_order: int,
    *,
    weights: Sequence[float] | None = None,
    arc_type: ArcType = "log64",
) -> FstArrays:
    """Return the counter of n-grams of the orders 1 .. N: (y, u) has the weight w_|u| c_u(y).

    The states are 0 .. N + 1.  State 0 skips symbols (a:eps); state s < N copies one symbol and
    leads to s + 1.  From each state s = 1 .. N, an arc eps:eps of cost -log w_s leads to the last
    state, which is final and skips symbols.  There are N + 2 states and (N + 2) n + N arcs.

    Parameters
    ----------
    alphabet : Alphabet
        n symbols.
    max_order : int
        N >= 1.
    weights : (N,), optional
        w_1 .. w_N > 0; all 1 if left out.
    arc_type
        As in `ngram_counter`.

    Raises
    ------
    InvalidInputError
        An argument is not as above, or the counter would have more than about 10 million arcs.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> ngrams_counter(Alphabet("ab"), 4).num_states()
    6
    """
    _check_size("max_order", max_order, len(labels(alphabet)))
    given = np.ones(max_order) if weights is None else weights
    weight = real_array("weights", given, (max_order,))
    if (weight <= 0).any():
        raise InvalidInputError(f"weights are {weight.tolist()}; give numbers > 0")
    label, end = labels(alphabet), max_order + 1
    state = np.arange(max_order)[:, None]
    ends = np.array([[0], [end]])
    return machine(
        arc_type,
        final_at(end + 1, end),
        [
            ArcGroup(ends, label, EPSILON_LABEL, 0.0, ends),
            ArcGroup(state, label, label, 0.0, state + 1),
            ArcGroup(1 + np.arange(max_order), EPSILON_LABEL, EPSILON_LABEL, -np.log(weight), end),
        ],
    )


@FstBuilder
def gappy_counter(
    alphabet: Alphabet, order: int, decay: float, *, arc_type: ArcType = "log64"
) -> FstArrays:
    """Return the counter of n-grams with gaps: (y, u) has the weight sum_i decay^l(i).

    The sum is over the sequences i_1 < ... < i_n of positions at which y spells u; such a sequence
    covers l(i) = i_n - i_1 + 1 positions.

    The states are those of `ngram_counter`.  A copied symbol costs -log decay, and so does each
    symbol that the states 1 .. n - 1 skip.  There are n + 1 states and (2 n + 1) |alphabet| arcs.

    Parameters
    ----------
    alphabet : Alphabet
    order : int
        n >= 1.
    decay : float
        Lambda in (0, 1]; powers of 2 keep all sums exact.
    arc_type
        As in `ngram_counter`.

    Raises
    ------
    InvalidInputError
        An argument is not as above, or the counter would have more than about 10 million arcs.

    References
    ----------
    Lodhi, Saunders, Shawe-Taylor, Cristianini, Watkins, "Text Classification using String
    Kernels", JMLR 2 (2002).

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> gappy_counter(Alphabet("ab"), 2, 0.5).num_states()
    3
    """
    _check_size("order", order, 2 * len(labels(alphabet)))
    decay = positive_number("decay", decay)
    if decay > 1:
        raise InvalidInputError(f"decay is {decay}; give a number in (0, 1]")
    label, cost = labels(alphabet), -np.log(decay)
    state = np.arange(order)[:, None]
    ends, inside = np.array([[0], [order]]), np.arange(1, order)[:, None]
    groups = [
        ArcGroup(ends, label, EPSILON_LABEL, 0.0, ends),
        ArcGroup(state, label, label, cost, state + 1),
    ]
    if order > 1:
        groups.append(ArcGroup(inside, label, EPSILON_LABEL, cost, inside))
    return machine(arc_type, final_at(order + 1, order), groups)


@FstBuilder
def mismatch_counter(
    alphabet: Alphabet, order: int, mismatches: int, *, arc_type: ArcType = "log64"
) -> FstArrays:
    """Return the counter with mismatches: (y, u) has the number of n-grams of y near u as weight.

    Two n-grams are near if they differ in at most m symbols.

    State (s, k) follows s symbols of the n-gram, k of which differ from those written.  a:a leads
    to (s + 1, k), a:b to (s + 1, k + 1).  The first and the last state skip symbols.  There are
    n (m + 1) + 2 states and O(n m |alphabet|^2) arcs.

    Parameters
    ----------
    alphabet : Alphabet
    order : int
        n >= 1.
    mismatches : int
        m, 0 <= m < n.
    arc_type
        As in `ngram_counter`.

    Raises
    ------
    InvalidInputError
        An argument is not as above, or the counter would have more than about 10 million arcs.

    References
    ----------
    Leslie, Eskin, Cohen, Weston, Noble, "Mismatch string kernels for discriminative protein
    classification", Bioinformatics 20 (2004).

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> mismatch_counter(Alphabet("acgt"), 3, 1).num_states()
    8
    """
    if positive_integer("mismatches", mismatches, minimum=0) >= positive_integer("order", order):
        raise InvalidInputError(f"mismatches is {mismatches}; give a number below order={order}")
    label, end = labels(alphabet), order * (mismatches + 1) + 1
    _check_size("order", order, (mismatches + 1) * len(label) ** 2)
    read, written = (1 + ids for ids in np.nonzero(~np.eye(len(label), dtype=bool)))
    ends = np.array([[0], [end]])
    groups = [ArcGroup(ends, label, EPSILON_LABEL, 0.0, ends)]

    def state(symbols: int, differing: int) -> int:
        if symbols == order:
            return end
        return 0 if symbols == 0 else 1 + (symbols - 1) * (mismatches + 1) + differing

    for symbols in range(order):
        for differing in range(mismatches + 1 if symbols else 1):
            here = state(symbols, differing)
            groups.append(ArcGroup(here, label, label, 0.0, state(symbols + 1, differing)))
            if differing < mismatches and len(label) > 1:
                there = state(symbols + 1, differing + 1)
                groups.append(ArcGroup(here, read, written, 0.0, there))
    return machine(arc_type, final_at(end + 1, end), groups)


def _check_size(name: str, order: int, arcs: int) -> None:
    """Raise InvalidInputError if a counter with about order x `arcs` arcs would be too large."""
    if positive_integer(name, order) * arcs > _MOST_ARCS:
        raise InvalidInputError(
            f"{name} is {order}, which needs a counter of about {order * arcs:,} arcs (at most "
            f"{_MOST_ARCS:,}); give a smaller {name} or alphabet"
        )
