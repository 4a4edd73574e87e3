"""The Hamming distance as a transducer."""

from typing import cast

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.labels import over_symbols
from fstgrad.losses.transducers.arcs import ArcGroup, FstBuilder, final_at, labels, machine
from fstgrad.openfst import ArcType, FstArrays


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
    table = checks.cost_array("cost", over_symbols("cost", cost, alphabet.symbols))
    if table.ndim == 2:
        costs = checks.cost_array("cost", table, (len(alphabet), len(alphabet)))
    else:
        costs = np.where(label[:, None] == label, 0.0, checks.cost("cost", cast(float, cost)))
    return machine(arc_type, final_at(1, 0), [ArcGroup(0, label[:, None], label, costs, 0)])
