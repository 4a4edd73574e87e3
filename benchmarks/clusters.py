"""The cost of a pass over a corpus of shards: CPU, memory and network; estimates for 10^8 pairs.

`shard_sums` sums shards of CMUdict words (phones with stress), in a separate process for each
objective, as a worker does.  The program measures

- CPU seconds per pair, if losses must be compiled, and if they are in a cache on disk: the least of
  two passes;
- peak resident memory of the process, and bytes of the cache per pair;
- bytes that a worker sends back for a shard of a given size, pickled as joblib does;
- CPU seconds that the process that distributes the tasks needs to add one gradient.

The rows of 10^8 pairs are not measured but computed from these numbers by multiplication.

    python benchmarks/clusters.py [--quick] [--json FILE]
"""

import json
import math
import multiprocessing
import pathlib
import pickle
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import _harness

_harness.one_thread()

import _g2p  # noqa: E402

import fstgrad as fg  # noqa: E402
from fstgrad.io import read_pairs  # noqa: E402
from fstgrad.learning import shards as shard_module  # noqa: E402
from fstgrad.learning.shards import Shards, shard_sums  # noqa: E402

CORPUS = 10**8  # pairs of the corpus in the computed table
SHARD = 10**5  # pairs of one shard of this corpus
COUNT = 150  # measured pairs
OBJECTIVES: dict[str, dict[str, Any]] = {
    "cross-entropy": {"kind": "crf"},
    "margin, exact": {},
    "margin, cap 2": {"cap": 2.0},
    "margin, band": {"method": "sampled", "proposal": "band", "samples": 100},
    "risk, exact": {"kind": "risk"},
    "risk, cap 2": {"kind": "risk", "cap": 2.0},
    "risk, band": {"kind": "risk", "method": "sampled", "proposal": "band", "samples": 100},
}


def words() -> list[tuple[str, tuple[str, ...]]]:
    """Return words and their phones."""
    path = _g2p.DATA / "g2p_cmudict" / "cmudict20k.tsv"
    path = path if path.exists() else _g2p.ROOT / "data" / "cmudict2000.tsv"
    return [("".join(x), tuple(y)) for x, y in read_pairs(path, tokens_y="words")]


def objective(pairs: Any, name: str) -> fg.PairObjective:
    """Return one of the objectives, with the features of all pairs."""
    abc = fg.Alphabet.from_sequences(y for _, y in pairs)
    features = fg.TemplateFeatures.from_pairs(abc, 2, fg.Window(3, 3), pairs)
    return fg.PairObjective(features, fg.EditDistance(abc), **OBJECTIVES[name])


def spread(pairs: Any, count: int) -> Any:
    """Return `count` pairs (or all), spread evenly over all pairs."""
    return pairs[:: max(1, len(pairs) // count)][:count]


def write(pairs: Any, path: pathlib.Path) -> pathlib.Path:
    """Write pairs to a file, a shard; return its path."""
    lines = (f"{x}\t{' '.join(y)}\n" for x, y in pairs)
    path.write_text("".join(lines), encoding="utf-8")
    return path


def measured(name: str, count: int) -> dict[str, Any]:
    """Return the costs of one objective; call this in a new process."""
    import numpy as np

    pairs = words()
    own = objective(pairs, name)
    w = np.random.default_rng(0).normal(size=own.features.shape) / 10
    with tempfile.TemporaryDirectory() as folder:
        path = write(spread(pairs, count), pathlib.Path(folder) / "shard.tsv")
        warm = write(spread(pairs, 10), pathlib.Path(folder) / "warm.tsv")
        shard_sums(own, w, [warm], tokens_y="words")  # loads the kernels
        kept = Shards([path], tokens_y="words", cache_directory=f"{folder}/cache")
        seconds = [seconds_of(own, w, Shards([path], tokens_y="words")) for _ in range(2)]
        seconds_of(own, w, kept)
        later = min(seconds_of(own, w, kept) for _ in range(2))
        disk = sum(file.stat().st_size for file in pathlib.Path(f"{folder}/cache").rglob("*.*"))
        text = path.stat().st_size
    return {
        "objective": name,
        "pairs": count,
        "weights": int(np.prod(own.features.shape)),
        "seconds a pair": min(seconds) / count,
        "seconds a pair, cache on disk": later / count,
        "pairs/s/core": count / min(seconds),
        "bytes of text a pair": text / count,
        "bytes on disk a pair": disk / count,
        "peak MB": _harness.peak_megabytes(),
    }


def seconds_of(own: fg.PairObjective, w: Any, shards: Shards) -> float:
    """Return the CPU seconds of one pass over the shards."""
    started = time.process_time()
    shard_sums(own, w, shards)
    return time.process_time() - started


def network(sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Yield the bytes that are sent for a shard, and the CPU seconds to add them."""
    import numpy as np

    pairs = words()
    own = objective(pairs, "cross-entropy")
    size = own.features.shape[0]
    w = np.random.default_rng(0).normal(size=size) / 10
    for count in sizes:
        with tempfile.TemporaryDirectory() as folder:
            path = write(spread(pairs, count), pathlib.Path(folder) / "shard.tsv")
            shards = Shards([str(path)], tokens_y="words")
            sent = pickle.dumps(shard_module._block_sums(own, w, shards, 0, False))
            blocks = [pickle.loads(sent).sums for _ in range(8)]
        started = time.process_time()
        tree = shard_module._Tree(len(blocks), size)
        for i, sums in enumerate(blocks):
            tree.add(i, sums)
        yield {
            "pairs of the shard": min(count, len(pairs)),
            "weights": size,
            "weights with a gradient": int(np.count_nonzero(tree.root.gradient)),
            "bytes sent": len(sent),
            "bytes dense": 8 * size,
            "seconds to add": (time.process_time() - started) / (len(blocks) - 1),
        }


def extrapolated(row: dict[str, Any]) -> dict[str, Any]:
    """Return the costs of one gradient of the corpus, by multiplication."""
    hours = CORPUS / 3600
    return {
        "objective": row["objective"],
        "text GB": row["bytes of text a pair"] * CORPUS / 1e9,
        "core hours": row["seconds a pair"] * hours,
        "core hours, cache on disk": row["seconds a pair, cache on disk"] * hours,
        "disk TB": row["bytes on disk a pair"] * CORPUS / 1e12,
        "GB a worker": row["peak MB"] / 1e3,
        "GB of gradients": 8 * row["weights"] * math.ceil(CORPUS / SHARD) / 1e9,
    }


def main() -> None:
    """Measure the costs, and multiply them."""
    given = _harness.arguments(__doc__ or "", choices=())
    count = 20 if given.quick else COUNT
    context = multiprocessing.get_context("spawn")

    def rows() -> Iterator[dict[str, Any]]:
        for name in OBJECTIVES:
            with ProcessPoolExecutor(1, mp_context=context) as executor:
                yield executor.submit(measured, name, count).result()

    title = "A pass over shards of CMUdict, edit distance, order 2"
    done = _harness.report(title, rows())
    sizes = (10, 100) if given.quick else (10, 100, 1000, 20_000)
    sent = _harness.report("What a shard sends back (cross-entropy)", network(sizes))
    title = f"One gradient of {CORPUS:,} pairs in shards of {SHARD:,}, multiplied"
    large = _harness.report(title, map(extrapolated, done))
    if given.json:
        content = {**_harness.environment(), "rows": done, "network": sent, "corpus": large}
        pathlib.Path(given.json).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
