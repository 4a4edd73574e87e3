"""Figure 5 of Cortes et al. (2018) and what belongs to it: times, arcs and errors by length.

|Delta| = 10; all bigram counts are features (|w| = 100); weights are N(0, 1), targets uniform.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from _harness import Row, median_seconds, seconds_of
from _papers import Section

import fstgrad as fg
from fstgrad import plot
from fstgrad.strings.markov_chain import Chain

ABC = fg.Alphabet("abcdefghij")
FEATURES = fg.QGramCounts(ABC, 2)
EDIT, LOCAL, BIGRAM = "edit distance", "Smith-Waterman", "bigram"
LOSSES = {EDIT: fg.EditDistance(ABC), LOCAL: fg.SmithWaterman(ABC), BIGRAM: fg.NGram(ABC, 2)}
THRESHOLD = 6.0  # nats above the least loss
CAPS = {EDIT: 6.0, LOCAL: -4.0}
ENUMERATION, EXTRAPOLATED = "enumeration", "enumeration, extrapolated"
OPENFST, OPENFST_PRUNED = "OpenFst, unpruned", "OpenFst, pruned"
EXACT, CAPPED, PRUNED = "fstgrad, exact", "fstgrad, capped", "fstgrad, pruned"
STRINGS = 10**6  # enumerated, where the time for all strings is extrapolated
MAX_STATES = 2_000_000


@dataclass(frozen=True)
class Sizes:
    """The lengths, the trials of each, and the largest length of each method of a loss."""

    lengths: tuple[int, ...]
    trials: int  # up to length 6
    longest: dict[str, dict[str, int]]

    def count(self, method: str, length: int) -> int:
        """Return the number of trials."""
        few = length > 6 or (length == 6 and method == ENUMERATION)
        return min(3, self.trials) if few else self.trials


TROPICAL = (OPENFST, OPENFST_PRUNED, EXACT, CAPPED, PRUNED)
QUICK = Sizes(
    (2, 3, 4, 5),
    5,
    {
        loss: {ENUMERATION: 4, EXTRAPOLATED: 5, **dict.fromkeys(methods, 5)}
        for loss, methods in ((EDIT, TROPICAL), (LOCAL, TROPICAL), (BIGRAM, (OPENFST, EXACT)))
    },
)
FULL = Sizes(
    (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 20, 30),
    125,
    {
        EDIT: {
            ENUMERATION: 6, EXTRAPOLATED: 8, OPENFST: 10, OPENFST_PRUNED: 12, EXACT: 14,
            CAPPED: 30, PRUNED: 30,
        },
        LOCAL: {
            ENUMERATION: 6, EXTRAPOLATED: 8, OPENFST: 8, OPENFST_PRUNED: 10, EXACT: 12,
            CAPPED: 12, PRUNED: 12,
        },
        BIGRAM: {ENUMERATION: 6, EXTRAPOLATED: 8, OPENFST: 8, EXACT: 20},
    },
)  # fmt: skip


class Trial(NamedTuple):
    """One gradient: its seconds, the arcs of B, F, and dF/dw."""

    seconds: float
    arcs: int
    value: float
    gradient: np.ndarray


@dataclass(frozen=True)
class Cell:
    """The trials of a loss, a length and a method, and the exact ones where they are feasible."""

    trials: list[Trial]
    exact: list[Trial]

    def mean(self, field: str) -> float:
        """Return the mean over the trials."""
        return float(np.mean([getattr(trial, field) for trial in self.trials]))

    def errors(self) -> np.ndarray:
        """Return the differences of F, which are those of log Z, from the exact values."""
        return np.array([a.value - b.value for a, b in zip(self.trials, self.exact, strict=False)])

    def gradient_errors(self) -> np.ndarray:
        """Return the largest difference of an entry of dF/dw from the exact one, by trial."""
        pairs = zip(self.trials, self.exact, strict=False)
        return np.array([np.abs(a.gradient - b.gradient).max() for a, b in pairs])

    def largest(self) -> float:
        """Return the largest difference of F or of an entry of dF/dw."""
        return float(max(np.abs(self.errors()).max(), self.gradient_errors().max()))


Cells = dict[tuple[str, int, str], Cell]


def measured(sizes: Sizes) -> Cells:
    """Return the trials of all losses, lengths and methods that are feasible."""
    cells: Cells = {}
    for loss, longest in sizes.longest.items():
        for length in sizes.lengths:
            trials = {
                method: list(_trials(loss, method, length, sizes.count(method, length)))
                for method, most in longest.items()
                if method != EXTRAPOLATED and length <= most
            }
            for method, own in trials.items():
                cells[loss, length, method] = Cell(own, trials.get(EXACT, []))
    return cells


def _trials(loss: str, method: str, length: int, count: int) -> Iterator[Trial]:
    """Yield the gradients of random problems; kernels are compiled before."""
    call = _enumerated if method == ENUMERATION else _by_automaton
    if method not in (OPENFST, OPENFST_PRUNED):
        call(loss, method, *_problem(length, 0))
    for number in range(count):
        problem, found = _problem(length, number), []
        seconds = seconds_of(lambda: found.append(call(loss, method, *problem)))  # noqa: B023
        yield Trial(seconds, *found[0])


def _problem(length: int, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a random target and random scores w . psi, (l, 11, 10)."""
    rng = np.random.default_rng((length, number))
    target, w = rng.integers(len(ABC), size=length), rng.normal(size=FEATURES.shape)
    return target, np.ascontiguousarray(FEATURES.scores(w, None, length))


def _by_automaton(
    loss: str, method: str, target: np.ndarray, scores: np.ndarray
) -> tuple[int, float, np.ndarray]:
    """Return the arcs of B, F and dF/dw, compilation included."""
    engine = "openfst" if method in (OPENFST, OPENFST_PRUNED) else "layered"
    limits: dict[str, Any] = {}
    if method in (OPENFST_PRUNED, PRUNED):
        limits = {"prune": THRESHOLD}
    if method == CAPPED:
        limits = {"cap": CAPS[loss]}
    b = LOSSES[loss].compile(target, engine=engine, max_states=MAX_STATES, **limits)
    value, table = fg.softmax_margin(scores, target, b, engine=engine)
    return b.num_arcs, value, FEATURES.gradient(table, None)


def _enumerated(
    loss: str, _method: str, target: np.ndarray, scores: np.ndarray, most: int | None = None
) -> tuple[int, float, np.ndarray]:
    """Return F and dF/dw by enumeration of all strings (or of `most`), a million at a time."""
    length, n = len(scores), scores.shape[-1]
    chain = Chain(np.zeros_like(scores))
    against = LOSSES[loss].against(target)
    flat = scores.ravel()
    total, table = 0.0, np.zeros_like(scores)
    for start in range(0, most or n**length, STRINGS):
        codes = np.arange(start, min(start + STRINGS, most or n**length))
        strings = codes[:, None] // n ** np.arange(length)[::-1] % n
        index = chain.flat_index(strings)
        weights = np.exp(flat[index].sum(axis=1) + against.losses_of(strings))
        weights[np.isinf(weights)] = 0.0  # an infinite loss: the string is left out
        total += weights.sum()
        table += chain.counts(index, weights)
    cells = fg.StringDistribution(scores).cells(target)
    gradient = table / total
    gradient[cells] -= 1.0
    return 0, float(np.log(total) - scores[cells].sum()), FEATURES.gradient(gradient, None)


def times(cells: Cells, sizes: Sizes) -> Section:
    """Return Figure 5: the seconds of one gradient by length."""
    rows: list[Row] = []
    for loss, longest in sizes.longest.items():
        for length in sizes.lengths:
            if length > max(longest.values()):
                continue
            row: Row = {"loss": loss, "l": length, "trials": sizes.count(EXACT, length)}
            for method in longest:
                cell = cells.get((loss, length, method))
                row[f"seconds {method}"] = cell.mean("seconds") if cell else None
            if longest[ENUMERATION] < length <= longest[EXTRAPOLATED]:
                row[f"seconds {EXTRAPOLATED}"] = _extrapolated(loss, length)
            rows.append(row)
    verdicts = [_faster(cells, loss) for loss in sizes.longest]
    return Section(
        "Figure 5",
        "seconds for one gradient dF/dw, by length",
        rows,
        "; ".join(verdicts)
        + ". The figure is a plot whose numbers are not at hand, so that only its "
        "shape can be compared: enumeration takes ten times as long for each symbol, automata do "
        "not",
        TIMES,
        {"seconds": _curves(rows)},
    )


def arcs(cells: Cells, sizes: Sizes) -> Section:
    """Return the mean numbers of arcs of B."""
    rows: list[Row] = []
    for loss, longest in sizes.longest.items():
        for length in sizes.lengths:
            found = {method: cells.get((loss, length, method)) for method in longest}
            row: Row = {"loss": loss, "l": length}
            for method, cell in found.items():
                if method not in (ENUMERATION, EXTRAPOLATED):
                    row[method] = cell.mean("arcs") if cell else None
            if any(found.values()):
                rows.append(row)
    return Section(
        "Figure 5",
        "arcs of B, the mean over the same trials",
        rows,
        "OpenFst's Det(M) has more arcs than the minimal automaton of the fast engine, which drops "
        "what can never be the best alignment and merges equal states; pruning removes most of the "
        "arcs of both, at the price of the next table",
        "An arc has one symbol. The bigram loss is rational, so it has neither caps nor pruning.",
    )


def errors(cells: Cells, sizes: Sizes) -> Section:
    """Return what pruning and caps do to log Z and to the gradient."""
    rows: list[Row] = []
    for loss, longest in sizes.longest.items():
        for length in sizes.lengths:
            own = {
                method: cells[loss, length, method]
                for method in longest
                if (loss, length, method) in cells
            }
            if EXACT not in own:
                continue
            row: Row = {"loss": loss, "l": length, "F": own[EXACT].mean("value")}
            for method in (ENUMERATION, OPENFST):
                row[f"difference {method}"] = own[method].largest() if method in own else None
            if PRUNED in longest:
                row["difference of the pruned"] = (
                    Cell(own[OPENFST_PRUNED].trials, own[PRUNED].trials).largest()
                    if OPENFST_PRUNED in own
                    else None
                )
                for method, name in ((PRUNED, "pruned"), (CAPPED, "capped")):
                    row[f"error {name}"] = float(own[method].errors().mean())
                    row[f"gradient {name}"] = float(own[method].gradient_errors().mean())
            rows.append(row)
    checked = [row[f"difference {m}"] or 0.0 for row in rows for m in (ENUMERATION, OPENFST)]
    return Section(
        "Figure 5",
        "errors of pruned and capped values, in nats",
        rows,
        f"enumeration, OpenFst and fstgrad agree on F and dF/dw within {max(checked):.1g}. "
        f"{_pruning_verdict(rows)}",
        ERRORS,
        {"errors": _error_curves(rows)},
        tolerance=1e-8,
    )


TIMES = (
    "|Δ| = 10, all bigram counts as features (100 weights from N(0, 1)), uniform targets. A time "
    "is the mean over the trials: 125 up to length 6 and 3 beyond, as in the figure (enumeration: "
    "3 from length 6 on). It includes the construction of B, which a training run does once for a "
    "target. Enumeration is compiled code; where it is extrapolated, it enumerated a part of the "
    "strings, at most a million. OpenFst rows are the operations of the paper, in one process. "
    "*Pruned* means that M is pruned at "
    f"{THRESHOLD:g} nats above its least loss, *unpruned* that it is not; the figure's own "
    f"threshold is not at hand. The cap is {CAPS[EDIT]:g} for the edit distance, and "
    f"{CAPS[LOCAL]:g} for Smith-Waterman, whose losses are negative. The bigram loss (by "
    "Grad-Rational) is not in the figure."
)
ERRORS = (
    "F is the objective of Eq. 1, the mean over the trials. Differences are the largest ones of F "
    "and of an entry of dF/dw from those of fstgrad, over all trials: of the exact methods, and of "
    "OpenFst's pruned values from fstgrad's. An error is the mean difference of F, which is that "
    "of log Z, from the exact value; *gradient* is the mean of the largest error of an entry of "
    "dF/dw."
)


def _extrapolated(loss: str, length: int) -> float:
    """Return the seconds of an enumeration from those of a part of the strings."""
    target, scores = _problem(length, 0)
    part = min(STRINGS, len(ABC) ** (length - 1))
    _enumerated(loss, ENUMERATION, target, scores, 10**4)
    seconds = seconds_of(lambda: _enumerated(loss, ENUMERATION, target, scores, part))
    return seconds * len(ABC) ** length / part


def _faster(cells: Cells, loss: str) -> str:
    """Return a sentence on the largest length at which OpenFst ran without pruning."""
    length = max(length for name, length, method in cells if (name, method) == (loss, OPENFST))
    openfst, ours = (cells[loss, length, m].mean("seconds") for m in (OPENFST, EXACT))
    return (
        f"{loss}, l = {length}: OpenFst, unpruned, {openfst:.2g} s, fstgrad, exact, {ours:.2g} s "
        f"({openfst / ours:.0f} times as fast)"
    )


def _pruning_verdict(rows: list[Row]) -> str:
    """Return a sentence on the sign and the size of the errors of pruning."""
    parts = []
    for loss in (EDIT, LOCAL):
        found = [row["error pruned"] for row in rows if row["loss"] == loss]
        parts.append(f"{min(found):+.2g} to {max(found):+.2g} nats for {loss}")
    apart = max(row.get("difference of the pruned") or 0.0 for row in rows)
    return (
        f"Both engines prune alike (within {apart:.1g}). Pruning by {THRESHOLD:g} changes F by "
        f"{' and by '.join(parts)}: where only a costlier alignment is left, the loss grows, and Z "
        "with it; a string without an alignment is left out, and Z falls. A cap lowers F, within "
        "bounds that are computed with it"
    )


def _curves(rows: list[Row]) -> Any:
    panels: dict[str, dict[str, Any]] = {}
    for loss in LOSSES:
        own = [row for row in rows if row["loss"] == loss]
        names = [name for name in own[0] if name.startswith("seconds ")]
        panels[loss] = {
            name.removeprefix("seconds "): tuple(
                zip(*((row["l"], row[name]) for row in own if row[name]), strict=True)
            )
            for name in names
        }
    figure = plot.curves(panels, xlabel="length l", ylabel="seconds for one gradient")
    for axes in figure.axes:
        axes.minorticks_off()  # two thirds of the file
    return figure


def _error_curves(rows: list[Row]) -> Any:
    panels: dict[str, dict[str, Any]] = {}
    for loss in (EDIT, LOCAL):
        own = [row for row in rows if row["loss"] == loss]
        panels[loss] = {
            name: ([row["l"] for row in own], [row[f"error {name}"] for row in own])
            for name in ("pruned", "capped")
        }
    return plot.curves(panels, xlabel="length l", ylabel="error of F (nats)", log=False)


def thresholds(quick: bool) -> Section:
    """Return the errors of pruning and of caps at equal thresholds."""
    length, rows = 5 if quick else 8, []
    for loss, peak in ((EDIT, 0.0), (EDIT, 3.0), (LOCAL, 0.0), (LOCAL, 3.0)):
        target, scores = _problem(length, 0)
        scores[np.arange(length), :, target] += peak
        exact = fg.StringDistribution(scores, LOSSES[loss].compile(target))
        log_z, q = exact.log_partition(), exact.marginals()
        least = LOSSES[loss](target, target)
        for threshold in (2.0, 4.0, 6.0, 12.0):
            pruned = LOSSES[loss].compile(target, prune=threshold)
            capped = LOSSES[loss].compile(target, cap=least + threshold)
            d, bounded = (fg.StringDistribution(scores, b) for b in (pruned, capped))
            lower, upper = bounded.log_partition_bounds()
            rows.append(
                {
                    "loss": loss,
                    "peak": peak,
                    "threshold": threshold,
                    "log Z": log_z,
                    "pruned": d.log_partition() - log_z,
                    "capped": bounded.log_partition() - log_z,
                    "lower": lower - log_z,
                    "upper": upper - log_z,
                    "Q pruned": float(np.abs(d.marginals() - q).max()),
                    "Q capped": float(np.abs(bounded.marginals() - q).max()),
                    "states pruned": pruned.num_states,
                    "states capped": capped.num_states,
                }
            )
    outside = [row for row in rows if not row["lower"] - 1e-9 <= 0 <= row["upper"] + 1e-9]
    return Section(
        "Figure 5",
        f"pruning and caps at equal thresholds, l = {length}",
        rows,
        ("the bounds of each cap enclose log Z" if not outside else f"WRONG bounds: {outside}")
        + "; pruning errs in both directions and has no bound",
        "The threshold is in nats above the least loss. *pruned* and *capped* are the errors of "
        "log Z; *lower* and *upper* are the bounds that come with a cap, minus log Z; Q columns "
        "are the largest errors of a marginal. The peak is added to the scores of the target's "
        "symbols, as training does.",
    )


def lengths(quick: bool) -> Section:
    """Return states, times and values of exact, pruned and capped automata by length."""
    settings = {EXACT: {}, PRUNED: {"prune": THRESHOLD}, CAPPED: {"cap": CAPS[EDIT]}}
    longest = {EXACT: 8, PRUNED: 20, CAPPED: 20} if quick else {EXACT: 16, PRUNED: 100, CAPPED: 400}
    rows: list[Row] = []
    for length in (4, 8, 20) if quick else (4, 8, 12, 14, 16, 20, 50, 100, 200, 400):
        target, scores = _problem(length, 0)
        exact = None
        for method, limits in settings.items():
            if length > longest[method]:
                continue
            loss = LOSSES[EDIT]
            b = loss.compile(target, max_states=MAX_STATES, **limits)
            d = fg.StringDistribution(scores, b)
            log_z = d.log_partition()
            exact = log_z if method == EXACT else exact
            bounds = d.log_partition_bounds() if method == CAPPED else (None, None)
            step = median_seconds(lambda: fg.softmax_margin(scores, target, b))  # noqa: B023
            rows.append(
                {
                    "l": length,
                    "method": method,
                    "states": b.num_states,
                    "states / l": b.num_states / length,
                    "MB": b.nbytes / 1e6,
                    "seconds compile": median_seconds(
                        lambda: loss.compile(target, max_states=MAX_STATES, **limits)  # noqa: B023
                    ),
                    "seconds step": step,
                    "seconds step / l": step / length,
                    "log Z": log_z,
                    "error": None if exact is None else log_z - exact,
                    "lower": bounds[0],
                    "upper": bounds[1],
                }
            )
    counts = {
        method: {row["l"]: row["states"] for row in rows if row["method"] == method}
        for method in settings
    }
    exact_states = ", ".join(f"{n:,} (l = {length})" for length, n in counts[EXACT].items())
    return Section(
        "Grad-Tropical",
        "is it linear in l? States, times and values for the edit distance",
        rows,
        f"not with exact losses: their automaton has {exact_states} states. "
        + "; ".join(
            f"{method}: {min(c.values()):,} to {max(c.values()):,} states from l = {min(c)} to "
            f"{max(c)}, {c[max(c)] / max(c):.3g} for each position at the end"
            for method, c in counts.items()
            if method != EXACT
        ),
        "The paper calls the algorithm linear in l. Determinization is not: the states of Det(M) "
        "are the possible rows of the edit-distance table, whose number grows exponentially "
        "until pruning or a cap limits the costs that are told apart. "
        f"Here both are at {THRESHOLD:g}. An error is the difference from the exact log Z "
        "where that is feasible; the bounds of a cap hold at any length. A step is one gradient "
        "for a given B.",
    )
