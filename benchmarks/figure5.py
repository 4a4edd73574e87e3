"""The experiment of Figure 5 of Cortes et al. (2018): the time of one gradient dF/dw.

|Delta| = 10; all bigram counts are features (|w| = 100); weights and targets of length l are
random; the losses are the edit distance, Smith-Waterman and the bigram loss.  One run compares

- naive: enumerate all 10^l strings in compiled code, with losses by the same kernel as in sampling;
- reference: the paper's operations in OpenFst (the engine "openfst"), up to a time limit;
- fstgrad: compilation and gradient.  They are exact up to the limit of states.  Beyond it, the loss
  is capped (edit distance) or the objective is sampled (other losses); see the column `method`.

    python benchmarks/figure5.py [--quick] [--json FILE] [--plot FILE.svg]

Calls of at least one second are timed once; of shorter calls, the median of five is reported.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from _harness import Row, median_seconds, one_thread, openfst_in_process, report, seconds_of

one_thread()

import numpy as np  # noqa: E402

import fstgrad as fg  # noqa: E402
from fstgrad import plot  # noqa: E402
from fstgrad.strings.markov_chain import Chain  # noqa: E402

TITLE = "Figure 5: seconds for one gradient, |Delta| = 10, bigram features"
ABC = fg.Alphabet("abcdefghij")
CAP = 6.0
SAMPLES = 1000
LOSSES = {
    "edit": fg.EditDistance(ABC),
    "Smith-Waterman": fg.SmithWaterman(ABC),
    "bigram": fg.NGram(ABC, 2),
}


@dataclass(frozen=True)
class Limits:
    """Limits beyond which a method is left out because it takes too long."""

    lengths: tuple[int, ...]
    naive: int  # largest length with enumeration
    reference_seconds: float  # the reference engine stops after a slower gradient
    max_states: int


QUICK = Limits((2, 3, 4, 5, 6, 10, 20), 4, 0.5, 20_000)
FULL = Limits((2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30), 6, 20.0, 1_000_000)


@dataclass
class Experiment:
    """The timings of one loss, for increasing lengths; methods that become too slow stop."""

    loss: fg.TransducerLoss
    limits: Limits
    reference_is_slow: bool = field(default=False, init=False)
    exact_is_large: bool = field(default=False, init=False)

    def row(self, length: int) -> Row:
        """Return the seconds of every method that is feasible at this length."""
        rng = np.random.default_rng(length)
        features = fg.QGramCounts(ABC, 2)
        target = rng.integers(len(ABC), size=length)
        w = rng.normal(size=features.shape) / 2
        scores = np.ascontiguousarray(features.scores(w, None, length))
        naive = reference = None
        if length <= self.limits.naive:
            naive = _seconds(lambda: naive_gradient(self.loss, scores, target, features))
        if not self.reference_is_slow:
            reference = self._reference(scores, target, features)
            limit = self.limits.reference_seconds
            self.reference_is_slow = reference is None or reference > limit
        method, states, call = self._ours(scores, target, features)
        ours = _seconds(call)
        return {
            "l": length,
            "method": method,
            "states": states,
            "seconds naive": naive,
            "seconds openfst": reference,
            "seconds fstgrad": ours,
            "ratio naive": naive and naive / ours,
            "ratio openfst": reference and reference / ours,
        }

    def _reference(self, scores, target, features) -> float | None:
        """Return the seconds of the paper's operations; None beyond the limit of states."""
        try:
            return _seconds(lambda: self._by_automaton(scores, target, features, "openfst"))
        except fg.StateLimitError:
            return None

    def _by_automaton(self, scores, target, features, engine, cap=None):
        b = self.loss.compile(target, engine=engine, cap=cap, max_states=self.limits.max_states)
        value, table = fg.softmax_margin(scores, target, b, engine=engine)
        return value, features.gradient(table, None)

    def _ours(self, scores, target, features) -> tuple[str, int | None, Callable[[], object]]:
        if not self.exact_is_large:
            try:
                b = self.loss.compile(target, max_states=self.limits.max_states)
            except fg.StateLimitError:
                self.exact_is_large = True
            else:
                call = lambda: self._by_automaton(scores, target, features, "layered")  # noqa: E731
                return "exact", b.num_states, call
        if isinstance(self.loss, fg.EditDistance):
            b = self.loss.compile(target, cap=CAP, max_states=self.limits.max_states)
            call = lambda: self._by_automaton(scores, target, features, "layered", CAP)  # noqa: E731
            return f"cap={CAP:g}", b.num_states, call
        result = fg.sampled_softmax_margin(scores, target, self.loss, samples=SAMPLES)
        method = f"sampled, ess {result.effective_samples:.0f}, se {result.standard_error:.2g}"

        def sampled():
            r = fg.sampled_softmax_margin(scores, target, self.loss, samples=SAMPLES)
            return r.value, features.gradient(r.gradient, None)

        return method, None, sampled


def naive_gradient(loss, scores, target, features):
    """Return F and its gradient in w by enumeration, a million strings at a time."""
    length, n = len(scores), scores.shape[-1]
    chain = Chain(np.zeros_like(scores))
    against = loss.against(target)
    flat = scores.ravel()
    total, table = 0.0, np.zeros_like(scores)
    for start in range(0, n**length, 10**6):
        codes = np.arange(start, min(start + 10**6, n**length))
        strings = codes[:, None] // n ** np.arange(length)[::-1] % n
        index = chain.flat_index(strings)
        weights = np.exp(flat[index].sum(axis=1))
        losses = against.losses_of(strings)
        weights *= np.where(losses < np.inf, np.exp(np.minimum(losses, 700.0)), 0.0)
        total += weights.sum()
        table += chain.counts(index, weights)
    cells = fg.StringDistribution(scores).cells(target)
    gradient = table / total
    gradient[cells] -= 1.0
    return np.log(total) - scores[cells].sum(), features.gradient(gradient, None)


def _seconds(call: Callable[[], object]) -> float:
    once = seconds_of(call)
    return once if once > 1 else median_seconds(call)


def rows(limits: Limits) -> Iterator[Row]:
    for name, loss in LOSSES.items():
        experiment = Experiment(loss, limits)
        for length in limits.lengths:
            yield {"loss": name, **experiment.row(length)}


def check() -> None:
    """Check that the three methods agree at a length where all are feasible."""
    for loss in LOSSES.values():
        experiment = Experiment(loss, QUICK)
        rng = np.random.default_rng(0)
        target, features = rng.integers(len(ABC), size=3), fg.QGramCounts(ABC, 2)
        scores = np.ascontiguousarray(features.scores(rng.normal(size=(10, 10)), None, 3))
        value, gradient = naive_gradient(loss, scores, target, features)
        for engine in ("layered", "openfst"):
            other, other_gradient = experiment._by_automaton(scores, target, features, engine)
            assert abs(value - other) < 1e-6
            assert np.abs(gradient - other_gradient).max() < 1e-6


def draw(done: list[Row], path: str) -> None:
    panels = {}
    for name in LOSSES:
        own = [row for row in done if row["loss"] == name]
        panels[name] = {}
        for column, label in (
            ("seconds naive", "enumeration"),
            ("seconds openfst", "the paper's operations (OpenFst)"),
        ):
            measured = [(row["l"], row[column]) for row in own if row[column]]
            panels[name][label] = tuple(zip(*measured, strict=True))
        for kind in ("exact", "cap", "sampled"):
            measured = [(r["l"], r["seconds fstgrad"]) for r in own if r["method"].startswith(kind)]
            if measured:
                label = {"cap": f"fstgrad, capped at {CAP:g}"}.get(kind, f"fstgrad, {kind}")
                panels[name][label] = tuple(zip(*measured, strict=True))
    figure = plot.curves(panels, xlabel="length l", ylabel="seconds for one gradient")
    plot.save(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=TITLE)
    parser.add_argument("--quick", action="store_true", help="small sizes, a few seconds in all")
    parser.add_argument("--json", metavar="FILE", help="write the rows, machine and versions here")
    parser.add_argument("--plot", metavar="FILE", help="draw the times here, .png or .svg")
    given = parser.parse_args()
    openfst_in_process()
    check()
    done = report(TITLE, rows(QUICK if given.quick else FULL), given.json)
    if given.plot:
        draw(done, given.plot)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
