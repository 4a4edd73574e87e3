"""Named tuples that the passes read; this module does not load the compiler."""

from typing import NamedTuple

from fstgrad.checks import FloatArray


class Work(NamedTuple):
    """Working memory of a level: rows (states, (n + 1)^(q-2) n) and masses (K, n)."""

    rows: FloatArray
    mass: FloatArray


class Dual(NamedTuple):
    """Numbers and their derivatives along one direction, of one shape."""

    value: FloatArray
    change: FloatArray


class DualWork(NamedTuple):
    """`Work` with derivatives."""

    rows: Dual
    mass: Dual
