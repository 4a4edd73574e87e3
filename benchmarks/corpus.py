"""Pairs per second in gradient passes over a pronouncing dictionary, by epoch and processes.

The objective is the exact softmax margin of the edit distance with bigram counts.  The first epoch
compiles every loss; later epochs get it from the cache.  The floor is the same pass without a loss
(`crf`): reading the weights, one pass over a chain, and adding up the gradient.  Memory is the peak
of the largest process.  On a shared machine, CPU seconds are more reliable than wall seconds; they
are reported for the process that distributes the pairs, and for the busiest worker, whose CPU
seconds are a lower bound of the wall seconds.

    python benchmarks/corpus.py [--quick] [--json FILE] [--data FILE.tsv] [--pairs N]

The data are rows `word TAB phones`; stress marks are left out.  The default is 20,000 rows in the
folder FSTGRAD_DATA or beside the project, or else the 2,000 rows that come with the project.
"""

import argparse
import multiprocessing
import os
import pathlib
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from _harness import Row, one_thread, peak_megabytes, report

one_thread()

import numpy as np  # noqa: E402

import fstgrad as fg  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHARED = pathlib.Path(os.environ.get("FSTGRAD_DATA", ROOT.parent / "shared" / "data"))
CACHE_BYTES = 12 * 2**30
TITLE = "Corpus: one gradient pass, edit distance, exact, bigram features"


def read(path: str | None, number: int | None) -> list[tuple[str, list[str]]]:
    """Return pairs (word, phones without stress)."""
    own = ROOT / "data" / "cmudict2000.tsv"
    large = SHARED / "g2p_cmudict" / "cmudict20k.tsv"
    source = pathlib.Path(path) if path else (large if large.exists() else own)
    lines = source.read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t") for line in lines]
    step = max(1, len(pairs) // number) if number else 1  # spread over all initial letters
    return [(x, [phone.rstrip("012") for phone in y.split()]) for x, y in pairs[::step][:number]]


@dataclass(frozen=True)
class Measured:
    """Wall seconds of each epoch, the sum of the objective, and memory in MiB.

    `parent` and `busiest` are CPU seconds of each epoch: of the process that distributes the pairs,
    and of the process that needs most.  With one job, both are the same process.
    """

    seconds: list[float]
    parent: list[float]
    busiest: list[float]
    value: float
    cache: float | None
    peak: float


def epochs(objective, pairs, w, jobs: int, number: int) -> Measured:
    """Measure `number` epochs in this process and its workers."""
    seconds, parent, busiest, value = [], [], [], 0.0
    with fg.Batch(objective, jobs=jobs, cache_bytes=CACHE_BYTES) as batch:
        batch.sums(w, pairs[:32])  # starts the processes, loads the kernels
        for _ in range(number):
            start, before = time.perf_counter(), cpu_seconds(batch)
            value = batch.sums(w, pairs).value
            seconds.append(time.perf_counter() - start)
            spent = [b - a for a, b in zip(before, cpu_seconds(batch), strict=True)]
            parent.append(spent[0])
            busiest.append(max(spent))
    cache = batch.objective.cache.nbytes / 2**20 if jobs == 1 else None
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return Measured(seconds, parent, busiest, value, cache, max(peak_megabytes(), children))


def cpu_seconds(batch: fg.Batch) -> list[float]:
    """Return the CPU seconds so far of this process and of each worker."""
    workers = [worker.submit(time.process_time).result() for worker in batch._workers]
    return [time.process_time(), *workers]


def in_new_process(*arguments) -> Measured:
    """Run `epochs` in a separate process, so that memory is that of this run alone."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(epochs, *arguments).result()


def rows(pairs, number: int) -> Iterator[Row]:
    abc = fg.Alphabet.from_sequences([y for _, y in pairs])
    features = fg.QGramCounts(abc, 2)
    w = np.random.default_rng(0).normal(size=features.shape) / 10
    objectives = {
        "edit": fg.PairObjective(features, fg.EditDistance(abc)),
        "no loss (floor)": fg.PairObjective(features, kind="crf"),
    }
    one: dict[str, float] = {}
    values: dict[str, float] = {}
    for name in ("no loss (floor)", "edit"):
        for jobs in (1, 2):
            run = in_new_process(objectives[name], pairs, w, jobs, number)
            seconds, later = run.seconds, float(np.median(run.seconds[1:]))
            cpu_later = float(np.median(run.busiest[1:]))
            assert values.setdefault(name, run.value) == run.value, "sums depend on the processes"
            one.setdefault(f"{name} first", seconds[0])
            one.setdefault(f"{name} later", later)
            one.setdefault(f"{name} first CPU", run.busiest[0])
            one.setdefault(f"{name} later CPU", cpu_later)
            yield {
                "loss": name,
                "processes": jobs,
                "pairs": len(pairs),
                "symbols": len(abc),
                "seconds first": seconds[0],
                "seconds later": later,
                "pairs/s first": len(pairs) / seconds[0],
                "pairs/s later": len(pairs) / later,
                "ratio first/later": seconds[0] / later,
                "ratio processes, first": one[f"{name} first"] / seconds[0],
                "ratio processes, later": one[f"{name} later"] / later,
                "ratio by CPU, first": one[f"{name} first CPU"] / run.busiest[0],
                "ratio by CPU, later": one[f"{name} later CPU"] / cpu_later,
                "seconds CPU parent": float(np.median(run.parent[1:])) if jobs > 1 else None,
                "cache MB": run.cache,
                "peak MB": run.peak,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=TITLE)
    parser.add_argument("--quick", action="store_true", help="300 pairs")
    parser.add_argument("--json", metavar="FILE", help="write the rows, machine and versions here")
    parser.add_argument("--data", metavar="FILE", help="rows: word TAB phones")
    parser.add_argument("--pairs", type=int, metavar="N", help="take N pairs, evenly spread")
    given = parser.parse_args()
    number = given.pairs or (300 if given.quick else None)
    pairs = read(given.data, number)
    report(TITLE, rows(pairs, 3 if given.quick else 6), given.json)


if __name__ == "__main__":
    main()
