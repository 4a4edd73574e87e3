"""Learned costs against unit and hand-written costs: how often is the right word ranked first?

For each misspelt or misread word, the costs rank the right word among the 50 words of a dictionary
that share most bigrams with it.  Costs are learned from different data than they are tested on: for
misspellings, from words whose correction begins with other letters, so that no stem is in both
parts; for Dutch and Polish prints, from other pages.  The table has the mean reciprocal rank, the
shares of right words that are first and among the first five, with 95 percent intervals over the
words, and the paired gains over unit and hand-written costs.  The last case searches a pronouncing
dictionary for the pronunciations of two spellings of a word or name.
"""

import os
import pathlib
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from _harness import one_thread, run

one_thread()

import numpy as np  # noqa: E402

import fstgrad as fg  # noqa: E402
from fstgrad.costs import Schedule, pair_transducer  # noqa: E402
from fstgrad.costs.ranking import (  # noqa: E402
    Questions,
    bootstrap_interval,
    losses_of,
    nearest_words,
    ranking,
    ranks,
)
from fstgrad.grammars import Grammar  # noqa: E402

DATA = pathlib.Path(
    os.environ.get("FSTGRAD_DATA", pathlib.Path(__file__).parent.parent.parent / "shared" / "data")
)
Pair = tuple[Sequence[str], Sequence[str]]
Row = dict[str, Any]


def read(path: pathlib.Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


def misspellings() -> tuple[list[Pair], list[Pair]]:
    """Return misspellings for training and for testing; the first three letters decide the part."""
    parts: tuple[list[Pair], list[Pair]] = ([], [])
    for x, y in read(DATA / "spelling" / "pairs.tsv"):
        if (x + y).isalpha() and (x + y).isascii() and x.islower() and y.islower():
            parts[zlib.crc32(y[:3].encode()) % 4 == 0].append((x, y))
    return parts


def misreadings(name: str) -> tuple[list[Pair], list[Pair]]:
    """Return (misread, right) words; the last quarter of the lines of the file is for testing."""
    rows = read(DATA / "ocr_icdar2019" / f"{name}.tsv")
    parts: tuple[list[Pair], list[Pair]] = ([], [])
    for n, (_, _, ocr, gold) in enumerate(rows):
        start = 0
        cuts = [k for k in range(len(ocr)) if ocr[k] == gold[k] == " "]
        for cut in [*cuts, len(ocr)]:
            x, y = (side[start:cut].replace("@", "") for side in (ocr, gold))
            start = cut + 1
            if x and len(y) > 3 and y.isalpha() and " " not in x and x != y:
                parts[n >= 0.75 * len(rows)].append((x, y))
    return parts


def questions(pairs: Sequence[Pair], dictionary: Sequence[Sequence[str]], count: int) -> list[Any]:
    found = []
    for (x, y), near in zip(
        pairs, nearest_words([x for x, _ in pairs], dictionary, count), strict=True
    ):
        others = [dictionary[k] for k in near if dictionary[k] not in (x, y)]
        found.append((x, 0, [y, *others[: count - 1]]))
    return found


def measured(case: str, costs: str, loss, asked: Questions, seconds: float, bases=()):
    """Return a row of the table, and 0 or 1 per word: is the right word first?"""
    transducer = pair_transducer(loss)
    semiring = "tropical" if loss.semiring == "tropical" else "probability"
    found = ranking(ranks(asked, losses_of(transducer, asked.pairs, transducer.cost, semiring)))
    draws = np.random.default_rng(0).integers(0, len(found.ranks), size=(1000, len(found.ranks)))
    first = (found.ranks <= 1).astype(float)
    gains = [shown(bootstrap_interval(first - base, draws)) for base in bases] + ["-", "-"]
    row = {
        "case": case,
        "costs": costs,
        "words": len(found.ranks),
        "reciprocal rank": shown(found.reciprocal),
        "first": shown(found.at_1),
        "among five": shown(found.at_5),
        "first, gain on unit": gains[0],
        "on hand-written": gains[1],
        "seconds to learn": seconds,
    }
    return row, first


def shown(measure: tuple[float, float, float]) -> str:
    return "{:.3f} [{:.3f}, {:.3f}]".format(*measure)


def compared(
    case: str,
    train: Sequence[Pair],
    test: Sequence[Pair],
    dictionary: Sequence[Sequence[str]],
    hand: str,
    quick: bool,
) -> Iterator[Row]:
    """Yield the rows of one collection: unit and hand-written costs, likelihood, ranking."""
    abc = fg.Alphabet(sorted({s for words in (*train, *test) for w in words for s in w}
                             | {s for word in dictionary for s in word}))  # fmt: skip
    asked = Questions.encode(abc, questions(test, dictionary, 50))
    row, base = measured(case, "unit", fg.EditDistance(abc), asked, 0.0)
    yield row
    row, written = measured(case, hand, Grammar.load(hand).loss(abc), asked, 0.0, [base])
    yield row
    bases = [base, written]
    start = time.perf_counter()
    loss = fg.EditDistance(abc)
    fit = fg.fit_costs(
        loss,
        train,
        given="target",
        smoothing=0.05,
        held_out=0.1,
        schedule=Schedule(max_iter=30),
    )
    learned = fit.loss("probability")
    seconds = time.perf_counter() - start
    yield measured(case, "likelihood", learned, asked, seconds, bases)[0]
    start = time.perf_counter()
    lessons = questions(train[:: max(1, len(train) // (200 if quick else 1000))], dictionary, 20)
    better = fg.fit_ranking(fit, lessons, max_iter=10 if quick else 40)
    seconds = time.perf_counter() - start
    yield measured(case, "then ranking", better.loss("probability"), asked, seconds, bases)[0]


def spoken(quick: bool) -> Iterator[Row]:
    """Yield the rows of words by sound; costs are learned from other words than are tested."""
    by_word = {
        word: tuple(phone.rstrip("012") for phone in text.split())
        for word, text in read(DATA / "g2p_cmudict" / "cmudict20k.tsv")
    }
    pairs = variant_spellings(by_word)
    train, test = pairs[::2], pairs[1::2]
    dictionary = sorted({*sorted(set(by_word.values()))[:: 4 if quick else 1],
                         *(y for _, y in test)})  # fmt: skip
    yield from compared("sounds", train, test, dictionary, "phonetic", quick)


def variant_spellings(by_word: dict[str, tuple[str, ...]]) -> list[Pair]:
    """Return the pronunciations of words and names with two spellings, which are similar."""
    changes = (("y", "ie"), ("ck", "k"), ("tt", "t"), ("ll", "l"), ("ey", "y"), ("c", "k"),
               ("nn", "n"), ("er", "or"), ("en", "an"), ("i", "y"), ("ss", "s"), ("au", "o"),
               ("in", "en"), ("el", "al"), ("on", "en"), ("s", "z"), ("ei", "ie"))  # fmt: skip
    found = set()
    for word, sound in by_word.items():
        for old, new in changes:
            other = word.replace(old, new, 1)
            if other != word and other in by_word and by_word[other] != sound and len(sound) > 3:
                found.add((sound, by_word[other]))
    return sorted(found, key=lambda pair: zlib.crc32(repr(pair).encode()))


def speed(quick: bool) -> Row:
    """Return the CPU seconds of a fit to 20,000 pairs of ten letters, until it has converged."""
    rng = np.random.default_rng(0)
    abc, pairs = fg.Alphabet("abcdefghijklmnopqrstuvwxyz"), []
    for _ in range(2_000 if quick else 20_000):
        x = rng.integers(0, 26, size=10)
        y = np.where(rng.random(10) < 0.1, rng.integers(0, 26, size=10), x)
        pairs.append((x, np.delete(y, rng.integers(0, 10)) if rng.random() < 0.3 else y))
    loss = fg.EditDistance(abc)
    fg.fit_costs(loss, pairs[:10], schedule=Schedule(max_iter=1))  # compiles the kernels
    start = time.process_time()
    fit = fg.fit_costs(loss, pairs, smoothing=0.1)
    return {
        "case": "speed",
        "costs": "likelihood",
        "pairs": len(pairs),
        "steps": len(fit.log_likelihood),
        "seconds to learn": time.process_time() - start,
    }


def rows(quick: bool) -> Iterator[Row]:
    if not DATA.is_dir():
        sys.exit(f"no data in {DATA}; set FSTGRAD_DATA")
    part = slice(None, None, 5) if quick else slice(None)
    train, test = misspellings()
    words = sorted({y for _, y in (*train, *test)})
    yield from compared("misspellings", train[part], test[part], words, "keyboard", quick)
    for name in ("NL1", "PL1"):
        train, test = misreadings(name)
        words = sorted({y for _, y in (*train, *test)})
        yield from compared(f"misreadings {name}", train[part], test[part], words, "ocr", quick)
    yield from spoken(quick)
    yield speed(quick)


if __name__ == "__main__":
    run("Right words first: unit, hand-written and learned costs", rows)
