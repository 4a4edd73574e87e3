"""The Hamming distance as a transducer."""

import numpy as np

from fstgrad import checks
from fstgrad.alphabet import Alphabet
from fstgrad.openfst import ArcType, FstArrays
from fstgrad.transducers.arcs import ArcGroup, FstBuilder, final_at, labels, machine


@FstBuilder
def hamming_transducer(
    alphabet: Alphabet, *, cost: float = 1.0, arc_type: ArcType = "standard"
) -> FstArrays:
    """Return the Hamming transducer: `cost` for each position in which two strings differ.

    One state, start and final, with the loops a:a (cost 0) and a:b (`cost`): n^2 arcs.  Strings of
    different lengths have no path, that is an infinite distance.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> hamming_transducer(Alphabet("abc")).num_arcs(0)
    9
    """
    checks.cost("cost", cost)
    label = labels(alphabet)
    costs = np.where(label[:, None] == label, 0.0, cost)
    return machine(arc_type, final_at(1, 0), [ArcGroup(0, label[:, None], label, costs, 0)])
