"""FSTs as the oracles read them."""

import math

from fstgrad import openfst


def paths(fst):
    """The arc list of an FST as the oracle reads it: symbols are ids, epsilon is -1."""
    arrays = openfst.to_arrays(fst)
    columns = (arrays.source, arrays.ilabel - 1, arrays.olabel - 1, arrays.weight, arrays.nextstate)
    arcs = list(zip(*(column.tolist() for column in columns), strict=True))
    final = {s: cost for s, cost in enumerate(arrays.final.tolist()) if cost < math.inf}
    return arcs, arrays.start, final
