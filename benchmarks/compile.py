"""Compile B for one target: OpenFst's determinization of M against the layered engine.

The alphabet has 10 letters, and targets are random.  "ratio" compares determinization alone,
OpenFst against ours, each on its own reduced M (in the rational case with equal futures merged,
without which OpenFst's result explodes).  "ratio whole" compares everything after the transducer
and the target: Det(M) by OpenFst, unpruned, against the minimal B.  The losses are the unit edit
distance, l = 6..16 (OpenFst: up to 12), and the rational bigram loss, l = 5..30.  The last case is
the unit edit distance at l = 20: its cost, or the StateLimitError that is raised before memory runs
out.
"""

from collections.abc import Iterator

from _harness import (
    Row,
    median_seconds,
    one_thread,
    openfst_in_process,
    peak_megabytes,
    run,
    seconds_of,
)

one_thread()

import numpy as np  # noqa: E402

import fstgrad as fg  # noqa: E402
from fstgrad import openfst  # noqa: E402
from fstgrad.losses.automata.determinize import determinize  # noqa: E402
from fstgrad.losses.reference import hypothesis_machine  # noqa: E402
from fstgrad.losses.reference.determinization import DELTA, merge_equivalent_states  # noqa: E402

ABC = fg.Alphabet("abcdefghij")
OPENFST_LIMIT = {True: 8, False: 12}


def row(name: str, loss: fg.TransducerLoss, target: np.ndarray, reference: bool) -> Row:
    """Return the row of one target; with `reference`, OpenFst determinizes it too."""
    length = len(target)
    machine = loss.machine(target)
    steps = determinize(machine, length, max_states=5_000_000)
    forward = 1 + sum(len(level.nextstate) for level in steps.levels[1:]) + len(steps.final)
    candidates = sum(level.nextstate.size for level in steps.levels)
    b = loss.compile(target, max_states=5_000_000)
    alone = median_seconds(lambda: determinize(machine, length, max_states=5_000_000))
    seconds = median_seconds(lambda: loss.compile(target, max_states=5_000_000))
    states = openfst_alone = openfst_whole = None
    if reference:
        arc_type = "standard" if loss.semiring == "tropical" else "log64"
        factors = [openfst.with_arc_type(factor, arc_type) for factor in loss.factors]

        def prepared() -> openfst.Fst:
            acceptor = hypothesis_machine(factors, ABC, target, length)
            return acceptor if arc_type == "standard" else merge_equivalent_states(acceptor)

        acceptor = prepared()
        preparation = seconds_of(prepared)
        found: list[openfst.Fst] = []
        openfst_alone = seconds_of(
            lambda: found.append(openfst.determinize(acceptor, delta=DELTA[arc_type]))
        )
        openfst_whole = preparation + openfst_alone
        states = found[0].num_states()
    return {
        "loss": name,
        "l": length,
        "states": forward,
        "minimal": b.num_states,
        "times minimal": forward / b.num_states,
        "seconds": alone,
        "seconds whole": seconds,
        "M rows/s": candidates / alone / 1e6,
        "OpenFst states": states,
        "seconds OpenFst": openfst_alone,
        "ratio": None if openfst_alone is None else openfst_alone / alone,
        "ratio whole": None if openfst_whole is None else openfst_whole / seconds,
        "MB peak": peak_megabytes(),
    }


def rows(quick: bool) -> Iterator[Row]:
    rng = np.random.default_rng(0)
    edit, bigram = fg.EditDistance(ABC), fg.NGram(ABC, 2, smoothing=1.0)
    for length in (6, 8, 10) if quick else (6, 7, 8, 9, 10, 11, 12, 14, 16):
        target = rng.integers(10, size=length)
        yield row("unit edit", edit, target, length <= OPENFST_LIMIT[quick])
    for length in (5, 10) if quick else (5, 10, 15, 20, 25, 30):
        target = rng.integers(10, size=length)
        yield row("bigram", bigram, target, reference=True)
    if not quick:
        target = rng.integers(10, size=20)
        try:
            yield row("unit edit", edit, target, False)
        except fg.StateLimitError as error:
            print(error)


if __name__ == "__main__":
    openfst_in_process()
    run("Compiling a loss: OpenFst's determinization against the layered engine", rows)
