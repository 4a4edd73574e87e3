"""Which loss knows a typing error?
================================

This program compares losses by how well they find the correction of a misspelling.

Each misspelling is compared with its correction and with words of similar spelling.  A loss that
models how people mistype ranks the correction first.

    python examples/spelling.py [PAIRS.tsv] [COUNT]
"""

import difflib
import pathlib
import random
import string
import sys

import fstgrad as fg
from fstgrad.grammars import Grammar

DATA = pathlib.Path(__file__).parents[1] / "data"
LETTERS = fg.Alphabet(string.ascii_lowercase)


def read(path, count):
    """Yield (misspelling, candidates) `count` times; the first candidate is the correction."""
    lines = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
    pairs = [line.split("\t") for line in lines]
    plain = [(x, y) for x, y in pairs if all(s.isascii() and s.islower() for s in (x, y))]
    plain = [(x, y) for x, y in plain if x.isalpha() and y.isalpha() and 4 <= len(y) <= 12]
    words = sorted({y for _, y in plain})
    rng = random.Random(0)
    for x, y in rng.sample(plain, count):
        rivals = difflib.get_close_matches(y, rng.sample(words, min(len(words), 2000)), 5, 0.5)
        yield x, [y, *(word for word in rivals if word != y)]


def main(path=DATA / "typos.tsv", count=60):
    losses = {
        "edit": fg.EditDistance(LETTERS),
        **{name: Grammar.load(name).loss(LETTERS) for name in ("damerau", "keyboard", "ocr")},
    }
    rows = list(read(path, int(count)))
    print(f"{len(rows)} misspellings, {sum(len(words) for _, words in rows)} candidates")
    shares = {}
    print(f"{'loss':<10}{'of the correction':>18}{'margin':>9}{'first':>8}")
    for name, loss in losses.items():
        tables = [[loss(x, word) for word in words] for x, words in rows]
        own = sum(table[0] for table in tables) / len(rows)
        margins = [min(table[1:], default=table[0]) - table[0] for table in tables]
        first = sum(margin > 0 for margin in margins) / len(rows)
        print(f"{name:<10}{own:>18.3f}{sum(margins) / len(rows):>9.3f}{first:>8.1%}")
        shares[name] = first
    return shares


if __name__ == "__main__":
    if len(sys.argv) > 3:
        sys.exit(__doc__)
    shares = main(*sys.argv[1:])
    letters = {
        "edit distance": fg.EditDistance(LETTERS),
        "with transpositions": fg.OptimalStringAlignment(LETTERS),
    }
    pair = "recieve", "receive"
    figures = [
        fg.plot.alignment({name: loss.align(*pair) for name, loss in letters.items()}),
        fg.plot.bars({"": shares}, xlabel="correction comes first", log=False),
    ]
