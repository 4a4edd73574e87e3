"""`fstgrad score` beside the command jiwer on the same files of random words.

Whole commands, from start to exit, on a plain text file of hypotheses and one of references.  A
hypothesis is its reference with one word in ten replaced, one in twenty dropped and one in twenty
doubled.  The numbers of errors of both are compared first.
"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator

import _harness
import numpy as np
from _harness import Row

import fstgrad as fg

WORDS, VOCABULARY = 20, 5000


def corpus(pairs: int) -> tuple[list[str], list[str]]:
    """Return hypotheses and references, lines of words."""
    rng = np.random.default_rng(0)
    hypotheses, references = [], []
    for _ in range(pairs):
        words = rng.integers(VOCABULARY, size=WORDS)
        replaced = np.where(rng.random(WORDS) < 0.1, rng.integers(VOCABULARY, size=WORDS), words)
        copies = rng.choice([0, 1, 2], p=[0.05, 0.9, 0.05], size=WORDS)
        references.append(" ".join(f"w{i}" for i in words))
        hypotheses.append(" ".join(f"w{i}" for i in np.repeat(replaced, copies)))
    return hypotheses, references


def rows(quick: bool) -> Iterator[Row]:
    """Yield one row for each number of pairs."""
    scripts = str(pathlib.Path(sys.executable).parent)
    fstgrad, jiwer = (shutil.which(name, path=scripts) for name in ("fstgrad", "jiwer"))
    with tempfile.TemporaryDirectory() as name:
        files = [pathlib.Path(name) / side for side in ("hypotheses.txt", "references.txt")]
        for pairs in (1_000,) if quick else (1_000, 10_000, 100_000):
            sides = corpus(pairs)
            for path, lines in zip(files, sides, strict=True):
                path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
            row: Row = {"pairs": pairs, "words": WORDS}
            row["seconds"] = _seconds([str(fstgrad), "score", *map(str, files)])
            if jiwer is not None:
                _compare(*sides)
                row["seconds jiwer"] = _seconds(
                    [jiwer, "--hypothesis", str(files[0]), "--reference", str(files[1])]
                )
                row["times jiwer"] = row["seconds jiwer"] / row["seconds"]
            yield row


def _compare(hypotheses: list[str], references: list[str]) -> None:
    """Raise if both count different errors."""
    import jiwer

    theirs = jiwer.process_words(references, hypotheses)
    errors = theirs.substitutions + theirs.deletions + theirs.insertions
    ours = int(fg.score(hypotheses, references).errors.sum())
    if ours != errors:
        raise RuntimeError(f"fstgrad counts {ours} errors, jiwer {errors}")


def _seconds(command: list[str]) -> float:
    return _harness.median_seconds(
        lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    )


if __name__ == "__main__":
    _harness.run("Error rates of a corpus: fstgrad score and jiwer", rows)
