"""Tasks that map strings to strings: letters to phones, misspellings, lines of OCR.

Each task has pairs for training, for choosing settings (dev) and for testing; no two parts share a
word.  Tasks whose data is not installed are left out.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import _g2p
import numpy as np

Symbols = tuple[str, ...]
Pairs = list[tuple[Symbols, Symbols]]
LANGUAGES = ("bul", "dut", "hun", "arm_e", "jpn_hira", "vie_hanoi", "rum", "mlt_latn", "wel_sw")
OCR = {"ocr_nl": "NL1", "ocr_pl": "PL1"}


class Task(NamedTuple):
    """Pairs (x, y) of symbols, for training, for choosing settings, and for testing."""

    train: Pairs
    dev: Pairs
    test: Pairs


def names() -> tuple[str, ...]:
    """Return the tasks whose data is installed; there is always at least a sample of CMUdict."""
    files = {
        **{name: f"g2p_sigmorphon2021/{name}_train.tsv" for name in LANGUAGES},
        "spelling": "spelling/pairs.tsv",
        **{name: f"ocr_icdar2019/{file}.tsv" for name, file in OCR.items()},
    }
    found = [name for name, file in files.items() if (_g2p.DATA / file).exists()]
    return ("cmudict", *found)


def load(name: str) -> Task:
    """Return the task of this name."""
    if name == "cmudict":
        words: Pairs = [(tuple(word), phones) for word, phones in _g2p.read_words(7000)]
        cut = min(1000, len(words) // 5)
        return Task(words[2 * cut :], words[cut : 2 * cut], words[:cut])
    if name == "spelling":
        return _split_by_stem(list(_letters("spelling/pairs.tsv")))
    if name in OCR:
        rows = [pair for pair in _letters(f"ocr_icdar2019/{OCR[name]}.tsv") if all(pair)]
        return _shuffled(rows, dev=50, test=250)
    parts = (_letters(f"g2p_sigmorphon2021/{name}_{part}.tsv") for part in ("train", "dev", "test"))
    return Task(*([(x, tuple("".join(y).split(" "))) for x, y in part] for part in parts))


def _letters(file: str) -> Iterator[tuple[Symbols, Symbols]]:
    """Yield the first two columns of each row of a file, split into letters."""
    for line in (_g2p.DATA / file).read_text(encoding="utf-8").splitlines():
        x, y, *_ = line.split("\t")
        yield tuple(x), tuple(y)


def _shuffled(pairs: Sequence[tuple[Symbols, Symbols]], *, dev: int, test: int) -> Task:
    order = np.random.default_rng(0).permutation(len(pairs))
    mixed = [pairs[i] for i in order]
    return Task(mixed[dev + test :], mixed[test : dev + test], mixed[:test])


def _split_by_stem(pairs: Pairs) -> Task:
    """Split pairs so that corrections with the same first five letters are in the same part."""
    stems = sorted({y[:5] for _, y in pairs})
    order = np.random.default_rng(0).permutation(len(stems))
    place = {stems[i]: k / len(stems) for k, i in enumerate(order)}
    parts: tuple[Pairs, Pairs, Pairs] = ([], [], [])
    for pair in pairs:
        where = place[pair[1][:5]]
        parts[0 if where >= 1 / 3 else 1 if where >= 1 / 6 else 2].append(pair)
    return Task(*parts)
