"""Alignments as transducers: local with linear gaps, or with any ends and affine gaps."""

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.axis_labels import over_symbols
from fstgrad.core.checks import (
    LARGEST_COST,
    IntArray,
    direction_array,
    one_of,
    positive_number,
)
from fstgrad.losses.transducers.builder import (
    EPSILON_LABEL,
    ArcGroup,
    FstBuilder,
    final_at,
    labels,
    machine,
)
from fstgrad.openfst import ArcType, FstArrays

Ends = Literal["none", "y", "target", "both", "local"]
# symbols that may be skipped at cost 0 at either end: (of y, of the target)
_SKIPS: dict[str, tuple[tuple[bool, bool], ...]] = {
    "none": (),
    "y": ((True, False),),
    "target": ((False, True),),
    "both": ((True, False), (False, True)),
    "local": ((True, True),),
}


@FstBuilder
def smith_waterman_transducer(
    alphabet: Alphabet,
    *,
    match: float = -2.0,
    substitute: float = 1.0,
    insert: float = 1.0,
    delete: float = 1.0,
    arc_type: ArcType = "standard",
) -> FstArrays:
    """Return the Smith-Waterman transducer with linear gaps: the cost of the best local alignment.

    The cost of a pair is the minimum, over factors u of y and v of the target, of the edit cost of
    (u, v) with these costs.  Both factors may be empty, so the cost is never positive.

    The states are 0 (before), 1 (aligned) and 2 (after, final).  States 0 and 2 skip symbols at
    cost 0: a:eps, eps:a.  State 1 aligns: a:a (`match`), a:b (`substitute`), a:eps (`delete`),
    eps:a (`insert`).  eps:eps leads from 0 to 1 and from 1 to 2.  There are 3 states and
    n (n + 6) + 2 arcs (Figure 3b of Cortes et al. 2018).

    Parameters
    ----------
    alphabet : Alphabet
        n symbols.
    match, substitute, insert, delete : float
        Finite costs; a negative cost is a reward.
    arc_type : {"standard", "log64"}
        "standard" rounds costs to float32, "log64" keeps them.

    Raises
    ------
    InvalidInputError
        A cost is not finite, or there would be more than 2^25 arcs.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> smith_waterman_transducer(Alphabet("acgt")).num_states()
    3
    """
    costs = {"match": match, "substitute": substitute, "insert": insert, "delete": delete}
    match, substitute, insert, delete = (
        float(direction_array(name, value, ())) for name, value in costs.items()
    )
    label = labels(alphabet)
    align = np.full((len(label), len(label)), substitute)
    np.fill_diagonal(align, match)
    skipping = np.array([[0], [2]])
    return machine(
        arc_type,
        final_at(3, 2),
        [
            ArcGroup(skipping, label, EPSILON_LABEL, 0.0, skipping),
            ArcGroup(skipping, EPSILON_LABEL, label, 0.0, skipping),
            ArcGroup(1, label[:, None], label, align, 1),
            ArcGroup(1, label, EPSILON_LABEL, delete, 1),
            ArcGroup(1, EPSILON_LABEL, label, insert, 1),
            ArcGroup([0, 1], EPSILON_LABEL, EPSILON_LABEL, 0.0, [1, 2]),
        ],
    )


@FstBuilder
def alignment_transducer(
    alphabet: Alphabet,
    costs: npt.ArrayLike,
    *,
    gap_open: float,
    gap_extend: float,
    free_ends: Ends = "none",
    arc_type: ArcType = "standard",
) -> FstArrays:
    """Return the transducer of the best alignment with affine gaps.

    The cost of an alignment is the sum of costs[a, b] over aligned pairs (a, b), plus
    gap_open + (k - 1) gap_extend for each gap of k symbols.  The cost of a pair of strings is that
    of its best alignment.

    There are three states, as in Gotoh (1982): aligned (a:b), deleting (a:eps) and inserting
    (eps:b).  Aligned is entered from all three, deleting from aligned, and inserting from aligned
    and deleting; loops extend a gap.  So a gap in one string may be next to a gap in the other,
    each with its own `gap_open`, but a gap is never split: 3 states and 3 n^2 + 5 n arcs.  If
    gap_open = gap_extend, one state with n^2 + 2 n loops is enough.  With free ends, states that
    skip symbols come before and after these, connected by eps:eps.

    Parameters
    ----------
    alphabet : Alphabet
        n symbols.
    costs : (n, n) float64
        costs[i, j] is the cost of aligning symbol i of y with symbol j of the target, finite; a
        reward is negative.
    gap_open, gap_extend : float
        Cost >= 0 of the first symbol of a gap, and of each further symbol.
    free_ends : {"none", "y", "target", "both", "local"}
        The symbols that may be skipped at cost 0 at either end: none (global alignment), those of
        y, those of the target, those of one string at each end ("both", semi-global), or those of
        both strings (local).
    arc_type : {"standard", "log64"}
        "standard" rounds costs to float32, "log64" keeps them.

    Raises
    ------
    InvalidInputError
        An argument is not as above, or there would be more than 2^25 arcs.

    References
    ----------
    Gotoh, "An improved algorithm for matching biological sequences", J. Mol. Biol. 162 (1982).

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> costs = 1.0 - 2.0 * np.eye(4)
    >>> fst = alignment_transducer(Alphabet("acgt"), costs, gap_open=2, gap_extend=1)
    >>> fst.num_states(), sum(fst.num_arcs(state) for state in fst.states())
    (3, 68)
    """
    n, label = len(alphabet), labels(alphabet)
    align = direction_array(
        "costs", over_symbols("costs", costs, alphabet.symbols, "gap_open="), (n, n)
    )
    opening = positive_number("gap_open", gap_open, allow_zero=True, most=LARGEST_COST)
    extending = positive_number("gap_extend", gap_extend, allow_zero=True, most=LARGEST_COST)
    one_of("free_ends", free_ends, get_args(Ends))
    skips = _SKIPS[free_ends]
    first = 1 if skips else 0
    if opening == extending:
        aligned = deleting = inserting = first
        core = np.array([first])
    else:
        core = first + np.arange(3)
        aligned, deleting, inserting = (int(state) for state in core)
    groups = [
        ArcGroup(core[:, None, None], label[:, None], label, align, aligned),
        ArcGroup(aligned, label, EPSILON_LABEL, opening, deleting),
        ArcGroup(aligned, EPSILON_LABEL, label, opening, inserting),
    ]
    if len(core) > 1:
        groups += [
            ArcGroup(deleting, label, EPSILON_LABEL, extending, deleting),
            ArcGroup(deleting, EPSILON_LABEL, label, opening, inserting),
            ArcGroup(inserting, EPSILON_LABEL, label, extending, inserting),
        ]
    states = first + len(core)
    final = list(core)
    for skip in skips:
        before = 0 if len(skips) == 1 else states
        after = states + (before != 0)
        states = after + 1
        final.append(after)
        groups += _free_end(label, skip, before, aligned, core, after)
    return machine(arc_type, final_at(states, *final), groups)


def _free_end(
    label: IntArray,
    skip: tuple[bool, bool],
    before: int,
    aligned: int,
    core: IntArray,
    after: int,
) -> list[ArcGroup]:
    """Return the arcs that skip symbols of y, of the target or of both at cost 0."""
    ends = np.array([[before], [after]])
    groups = [
        ArcGroup(0, EPSILON_LABEL, EPSILON_LABEL, 0.0, aligned),
        ArcGroup(core, EPSILON_LABEL, EPSILON_LABEL, 0.0, after),
    ]
    if before != 0:
        groups += [
            ArcGroup(0, EPSILON_LABEL, EPSILON_LABEL, 0.0, before),
            ArcGroup(before, EPSILON_LABEL, EPSILON_LABEL, 0.0, aligned),
        ]
    if skip[0]:
        groups.append(ArcGroup(ends, label, EPSILON_LABEL, 0.0, ends))
    if skip[1]:
        groups.append(ArcGroup(ends, EPSILON_LABEL, label, 0.0, ends))
    return groups
