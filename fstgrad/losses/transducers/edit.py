"""The edit distance as a transducer and as two factors; the Hamming distance.

The transducers read the hypothesis y and write the target.  A deletion removes a symbol of y; an
insertion adds a symbol of the target.  The distance of a pair is the cost of its best path.
"""

from typing import cast

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.axis_labels import over_symbols
from fstgrad.core.checks import cost, cost_array
from fstgrad.losses.transducers.builder import (
    EPSILON_LABEL,
    ArcGroup,
    FstBuilder,
    final_at,
    labels,
    machine,
)
from fstgrad.openfst import ArcType, Fst, FstArrays, from_arrays

_GAPS = "strings of one length, or use EditDistance with confusion="


@FstBuilder
def edit_transducer(
    alphabet: Alphabet,
    *,
    insert_cost: float = 1.0,
    delete_cost: float = 1.0,
    substitute_cost: float = 1.0,
    confusion: npt.ArrayLike | None = None,
    arc_type: ArcType = "standard",
) -> FstArrays:
    """Return the edit-distance transducer.

    One state is the start and final.  It has the loops a:a (cost 0), a:b (substitution), a:eps
    (deletion) and eps:b (insertion): n (n + 2) arcs (Figure 3a of Cortes et al. 2018).

    Parameters
    ----------
    alphabet : Alphabet
        n symbols.
    insert_cost, delete_cost, substitute_cost : float
        Costs >= 0, or inf to forbid.
    confusion : (n, n) float64, optional
        confusion[i, j] is the cost of writing symbol j for symbol i of y, also for i = j; inf
        forbids.  It replaces `substitute_cost` and the cost 0 of a match.
    arc_type : {"standard", "log64"}
        "standard" rounds costs to float32, "log64" keeps them.

    Raises
    ------
    InvalidInputError
        A cost is negative or NaN; `confusion` has NaN, -inf or another shape; or there would be
        more than 2^25 arcs.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> edit_transducer(Alphabet("ab")).num_arcs(0)
    8
    """
    insert, delete, substitute = _checked_costs(
        insert_cost=insert_cost, delete_cost=delete_cost, substitute_cost=substitute_cost
    )
    label = labels(alphabet)
    n = len(alphabet)
    if confusion is None:
        costs = np.full((n, n), substitute)
        np.fill_diagonal(costs, 0.0)
    else:
        costs = cost_array(
            "confusion", over_symbols("confusion", confusion, alphabet.symbols), (n, n)
        )
    return machine(
        arc_type,
        final_at(1, 0),
        [
            ArcGroup(0, label[:, None], label, costs, 0),
            ArcGroup(0, label, EPSILON_LABEL, delete, 0),
            ArcGroup(0, EPSILON_LABEL, label, insert, 0),
        ],
    )


def edit_factors(
    alphabet: Alphabet,
    *,
    insert_cost: float = 1.0,
    delete_cost: float = 1.0,
    substitute_cost: float = 1.0,
    arc_type: ArcType = "standard",
) -> tuple[Fst, Fst]:
    """Return (T1, T2) with T1 o T2 = `edit_transducer`, each linear in the alphabet.

    Three labels above those of the alphabet connect the factors: i (insert), d (delete) and
    s (substitute).  T1 reads y and has the costs: a:a (cost 0), a:s, a:d, eps:i.  T2 writes the
    target at cost 0: a:a, s:b, d:eps, i:b.  Each has one state and 3 n + 1 arcs.  Figure 4b of
    Cortes et al. 2018 has only i and s; with d, each operation has a cost >= 0 of its own and can
    be forbidden.  Compose from the right, T1 o (T2 o Y_i), so that the n^2 arcs of the product are
    never built.  A substitution may write the symbol that it reads; since costs are
    >= 0, this is never cheaper than a match.

    Parameters
    ----------
    alphabet, insert_cost, delete_cost, substitute_cost, arc_type
        As in `edit_transducer`.

    Raises
    ------
    InvalidInputError
        A cost is negative or NaN.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> [factor.num_arcs(0) for factor in edit_factors(Alphabet("abcdefghij"))]
    [31, 31]
    """
    left, right = edit_factor_arrays(alphabet, insert_cost, delete_cost, substitute_cost, arc_type)
    return from_arrays(left), from_arrays(right)


def edit_factor_arrays(
    alphabet: Alphabet,
    insert_cost: float,
    delete_cost: float,
    substitute_cost: float,
    arc_type: ArcType,
) -> tuple[FstArrays, FstArrays]:
    """Return the arrays of `edit_factors`."""
    insert, delete, substitute = _checked_costs(
        insert_cost=insert_cost, delete_cost=delete_cost, substitute_cost=substitute_cost
    )
    label = labels(alphabet)
    inserted, deleted, substituted = len(alphabet) + np.array([1, 2, 3])
    pays = [
        ArcGroup(0, label, label, 0.0, 0),
        ArcGroup(0, label, substituted, substitute, 0),
        ArcGroup(0, label, deleted, delete, 0),
        ArcGroup(0, EPSILON_LABEL, inserted, insert, 0),
    ]
    writes = [
        ArcGroup(0, label, label, 0.0, 0),
        ArcGroup(0, substituted, label, 0.0, 0),
        ArcGroup(0, deleted, EPSILON_LABEL, 0.0, 0),
        ArcGroup(0, inserted, label, 0.0, 0),
    ]
    return machine(arc_type, final_at(1, 0), pays), machine(arc_type, final_at(1, 0), writes)


@FstBuilder
def subsequence_transducer(alphabet: Alphabet, *, arc_type: ArcType = "standard") -> FstArrays:
    """Return the transducer that counts target symbols outside a longest common subsequence.

    The cost of a pair is the number of these symbols.  One state is the start and final.  It has
    the loops a:a (cost 0), a:eps (cost 0) and eps:b (cost 1): 3 n arcs.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> subsequence_transducer(Alphabet("ab")).num_arcs(0)
    6
    """
    label = labels(alphabet)
    groups = [
        ArcGroup(0, label, label, 0.0, 0),
        ArcGroup(0, label, EPSILON_LABEL, 0.0, 0),
        ArcGroup(0, EPSILON_LABEL, label, 1.0, 0),
    ]
    return machine(arc_type, final_at(1, 0), groups)


@FstBuilder
def transposition_transducer(
    alphabet: Alphabet,
    *,
    insert_cost: float = 1.0,
    delete_cost: float = 1.0,
    substitute_cost: float = 1.0,
    transpose_cost: float = 1.0,
    arc_type: ArcType = "standard",
) -> FstArrays:
    """Return the edit transducer with transpositions: the optimal string alignment distance.

    State 0 is that of `edit_transducer`.  For a != b, a:b (`transpose_cost`) enters state (a, b),
    and b:a (cost 0) leaves it: n (n - 1) + 1 states and 3 n^2 arcs.  The unrestricted
    Damerau-Levenshtein distance, with edits between the two symbols, would need unbounded memory.

    Parameters
    ----------
    alphabet, insert_cost, delete_cost, substitute_cost, arc_type
        As in `edit_transducer`.
    transpose_cost : float
        Cost >= 0 of ab for ba, or inf to forbid.

    Raises
    ------
    InvalidInputError
        A cost is negative or NaN, or there would be more than 2^25 arcs.

    References
    ----------
    Damerau, "A technique for computer detection and correction of spelling errors", CACM 7 (1964).

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> transposition_transducer(Alphabet("abc")).num_states()
    7
    """
    insert, delete, substitute, transpose = _checked_costs(
        insert_cost=insert_cost,
        delete_cost=delete_cost,
        substitute_cost=substitute_cost,
        transpose_cost=transpose_cost,
    )
    label = labels(alphabet)
    costs = np.where(label[:, None] == label, 0.0, substitute)
    first, second = (1 + ids for ids in np.nonzero(~np.eye(len(label), dtype=bool)))
    between = 1 + np.arange(len(first))
    groups = [
        ArcGroup(0, label[:, None], label, costs, 0),
        ArcGroup(0, label, EPSILON_LABEL, delete, 0),
        ArcGroup(0, EPSILON_LABEL, label, insert, 0),
    ]
    if len(between):
        groups.append(ArcGroup(0, first, second, transpose, between))
        groups.append(ArcGroup(between, second, first, 0.0, 0))
    return machine(arc_type, final_at(1 + len(between), 0), groups)


def _checked_costs(**costs: float) -> list[float]:
    return [cost(name, value) for name, value in costs.items()]


@FstBuilder
def hamming_transducer(
    alphabet: Alphabet, *, cost: npt.ArrayLike = 1.0, arc_type: ArcType = "standard"
) -> FstArrays:
    """Return the Hamming transducer: `cost` for each position in which two strings differ.

    One state is the start and final.  It has the loops a:a (cost 0) and a:b (`cost`): n^2 arcs.
    Strings of different lengths have no path, so their distance is infinite.

    Parameters
    ----------
    alphabet : Alphabet
        n symbols.
    cost : float >= 0 or (n, n) float64
        In a matrix, cost[a, b] is the cost of symbol a of y in the place of symbol b of the target,
        also for a = b.  inf forbids.
    arc_type : {"standard", "log64"}
        "standard" rounds costs to float32, "log64" keeps them.

    Raises
    ------
    InvalidInputError
        A number is negative or NaN; a matrix has NaN, -inf or another shape; or there would be
        more than 2^25 arcs.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> hamming_transducer(Alphabet("abc")).num_arcs(0)
    9
    """
    label = labels(alphabet)
    table = checks.cost_array("cost", over_symbols("cost", cost, alphabet.symbols, _GAPS))
    if table.ndim == 2:
        costs = checks.cost_array("cost", table, (len(alphabet), len(alphabet)))
    else:
        costs = np.where(label[:, None] == label, 0.0, checks.cost("cost", cast(float, cost)))
    return machine(arc_type, final_at(1, 0), [ArcGroup(0, label[:, None], label, costs, 0)])
