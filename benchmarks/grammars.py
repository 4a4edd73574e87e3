"""Learned costs against unit and hand-written ones: how often the right word comes first.

For each misspelt or misread word the right one is to be found among 50 words of a dictionary, those
that share most bigrams with it.  Costs are learned from other sources: of the misspellings, words
whose correction begins with other letters (so that no stem is in both parts); of the Dutch and
Polish prints, other pages.  Reported are the mean reciprocal rank and the shares of right words that
come first and among the first five, with 95 % intervals over the words, and the difference to unit
costs, paired.  The last rows search a pronouncing dictionary for the word that sounds as a spoken one.
"""

import _harness

_harness.one_thread()

import os
import pathlib
import sys
import time
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

import fstgrad as fg
from fstgrad.costs import Schedule
from fstgrad.costs.ranking import Questions, interval, losses_of, nearest, ranking, ranks
from fstgrad.costs.source import aligner_of
from fstgrad.grammars import Grammar

DATA = pathlib.Path(
    os.environ.get("FSTGRAD_DATA", pathlib.Path(__file__).parent.parent.parent / "shared" / "data")
)
Pair = tuple[Sequence[str], Sequence[str]]


def read(path: pathlib.Path) -> list[list[str]]:
    return [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()]


def misspellings() -> tuple[list[Pair], list[Pair]]:
    """Misspellings with their corrections; the first three letters decide the part."""
    parts: tuple[list[Pair], list[Pair]] = ([], [])
    for x, y in read(DATA / "spelling" / "pairs.tsv"):
        if (x + y).isalpha() and (x + y).isascii() and x.islower() and y.islower():
            parts[zlib.crc32(y[:3].encode()) % 4 == 0].append((x, y))
    return parts


def misreadings(name: str) -> tuple[list[Pair], list[Pair]]:
    """Words of a collection and how they were read; the last quarter of the pages is for tests."""
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


def questions(pairs: Sequence[Pair], dictionary: Sequence[Sequence[str]], count: int) -> list:
    found = []
    for (x, y), near in zip(pairs, nearest([x for x, _ in pairs], dictionary, count), strict=True):
        found.append((x, 0, [y, *[dictionary[k] for k in near if dictionary[k] != y][: count - 1]]))
    return found


def measured(case: str, costs: str, loss, asked: Questions, seconds: float, base=None):
    """Return a row of the table, and the reciprocal ranks."""
    aligner = aligner_of(loss)
    semiring = "tropical" if loss.semiring == "tropical" else "probability"
    found = ranking(ranks(asked, losses_of(aligner, asked.pairs, aligner.cost, semiring)))
    draws = np.random.default_rng(0).integers(0, len(found.ranks), size=(1000, len(found.ranks)))
    first = (found.ranks <= 1).astype(float)
    gain = None if base is None else interval(first - base, draws)
    row = {
        "case": case,
        "costs": costs,
        "words": len(found.ranks),
        "reciprocal rank": shown(found.reciprocal),
        "first": shown(found.at_1),
        "among five": shown(found.at_5),
        "first, gain": "-" if gain is None else shown(gain),
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
) -> Iterator[dict]:
    """Yield the rows of one collection: unit, hand-written, likelihood, ranking."""
    abc = fg.Alphabet(sorted({s for words in (*train, *test) for w in words for s in w}
                             | {s for word in dictionary for s in word}))  # fmt: skip
    asked = Questions.encode(abc, questions(test, dictionary, 50))
    row, base = measured(case, "unit", fg.EditDistance(abc), asked, 0.0)
    yield row
    yield measured(case, hand, Grammar.load(hand).loss(abc), asked, 0.0, base)[0]
    start = time.perf_counter()
    loss = fg.EditDistance(abc)
    fit = fg.fit_costs(
        loss, train, given="target", smoothing=0.05, held_out=0.1, schedule=Schedule(max_iterations=30)
    )
    learned = fit.loss("probability")
    seconds = time.perf_counter() - start
    yield measured(case, "likelihood", learned, asked, seconds, base)[0]
    start = time.perf_counter()
    lessons = questions(train[:: max(1, len(train) // (200 if quick else 1000))], dictionary, 20)
    better = fg.fit_ranking(loss, lessons, max_iterations=10 if quick else 40)
    seconds = time.perf_counter() - start
    yield measured(case, "ranking", better.loss("probability"), asked, seconds, base)[0]


def spoken(quick: bool) -> Iterator[dict]:
    """Nearest words by sound: pronunciations in which one sound was confused, as in a noisy line.

    Real confusions: two words of one spelling class, homographs by spelling distance one, stand for
    mishearing; the learned table comes from other words.
    """
    rows = read(DATA / "g2p_cmudict" / "cmudict20k.tsv")
    by_word = {word: tuple(p.rstrip("012") for p in text.split()) for word, text in rows}
    plurals = [(by_word[w], by_word[w + "s"]) for w in by_word if w + "s" in by_word]
    variants = variant_spellings(by_word)
    train, test = variants[::2], variants[1::2]
    dictionary = sorted(set(by_word.values()))[:: 4 if quick else 1]
    dictionary = sorted({*dictionary, *(y for _, y in test)})
    del plurals
    yield from compared("sounds", train, test, dictionary, "phonetic", quick)


def variant_spellings(by_word: dict[str, tuple[str, ...]]) -> list[Pair]:
    """Names and words in two spellings, which are spoken nearly alike."""
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


def rows(quick: bool) -> Iterator[dict]:
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


if __name__ == "__main__":
    _harness.run("Right words first: unit, hand-written and learned costs", rows)
