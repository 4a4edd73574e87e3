"""Losses of pairs against RapidFuzz, parasail and Biopython: 6,000 spelling pairs, 440 proteins.

`python benchmarks/evaluate.py` prints seconds and the ratio to each competitor, with one thread,
and checks that the values agree.  Competitors that are not installed are left out
(`pip install rapidfuzz parasail biopython`).
"""

from _harness import interleaved_medians, one_thread, run

one_thread()

import importlib  # noqa: E402
import string  # noqa: E402

import numpy as np  # noqa: E402

import fstgrad as fg  # noqa: E402

RESIDUES = "ARNDCQEGHILKMFPSTWYV"


def spelling_pairs(rng, number=6000):
    """Return pairs (copy with up to three edits, word of 3 to 15 letters)."""
    pairs = []
    for _ in range(number):
        word = "".join(rng.choice(list(string.ascii_lowercase), size=int(rng.integers(3, 16))))
        letters = list(word)
        for _ in range(int(rng.integers(0, 4))):
            place = int(rng.integers(len(letters) + 1))
            letters[place : place + int(rng.integers(2))] = list(
                rng.choice(list(string.ascii_lowercase), size=int(rng.integers(2)))
            )
        pairs.append(("".join(letters), word))
    return pairs


def protein_pairs(rng, number=440, length=300):
    """Return pairs of a random protein and a copy: 30 percent of residues redrawn, three gaps."""
    pairs = []
    for _ in range(number):
        one = rng.choice(list(RESIDUES), size=length)
        two = np.where(rng.random(length) < 0.3, rng.choice(list(RESIDUES), size=length), one)
        for _ in range(3):
            start = int(rng.integers(len(two) - 20))
            two = np.delete(two, slice(start, start + int(rng.integers(1, 12))))
        pairs.append(("".join(one), "".join(two)))
    return pairs


def installed(name):
    """Return a module; None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def competitors(name, pairs):
    """Yield (competitor, function that returns the losses) for a task."""
    if name == "unit edit distance":
        rapidfuzz = installed("rapidfuzz.distance")
        if rapidfuzz is not None:
            distance = rapidfuzz.Levenshtein.distance
            yield "rapidfuzz", lambda: np.array([distance(a, b) for a, b in pairs], dtype=float)
        return
    parasail, align = installed("parasail"), installed("Bio.Align")
    if parasail is not None:
        score, matrix = parasail.sw_striped_16, parasail.blosum62
        yield (
            "parasail striped",
            lambda: -np.array([float(score(a, b, 11, 1, matrix).score) for a, b in pairs]),
        )
    if align is not None:
        aligner = align.PairwiseAligner(mode="local")
        aligner.substitution_matrix = align.substitution_matrices.load("BLOSUM62")
        aligner.open_gap_score, aligner.extend_gap_score = -11, -1
        yield "biopython", lambda: -np.array([aligner.score(a, b) for a, b in pairs])


def rows(quick):
    """Yield a row per task and competitor."""
    rng = np.random.default_rng(0)
    words = spelling_pairs(rng, 600 if quick else 6000)
    proteins = protein_pairs(rng, 44 if quick else 440)
    edits = fg.EditDistance(fg.Alphabet(string.ascii_lowercase))
    scored = fg.SmithWaterman(
        fg.Alphabet(RESIDUES), matrix="BLOSUM62", gap_open=11.0, gap_extend=1.0
    )
    tasks = [
        ("unit edit distance", edits, words),
        ("BLOSUM62, affine gaps", scored, proteins),
    ]
    for name, loss, pairs in tasks:
        ys, targets = zip(*pairs, strict=True)
        ours = loss.pairwise(ys, targets)
        for other, function in competitors(name, pairs):
            if not np.array_equal(function(), ours):
                raise SystemExit(f"{name}: {other} has other values")
            medians = interleaved_medians(
                {"ours": lambda: loss.pairwise(ys, targets), "theirs": function}  # noqa: B023
            )
            yield {
                "task": name,
                "pairs": len(pairs),
                "beside": other,
                "seconds fstgrad": medians["ours"],
                "seconds beside": medians["theirs"],
                "times as long": medians["ours"] / medians["theirs"],
            }


if __name__ == "__main__":
    run("Losses of pairs, the same values on one thread", rows)
