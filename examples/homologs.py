"""Is a homolog nearer than a stranger?  Alignment losses on families of proteins or of DNA.

Each sequence is aligned with a member of its own family and with members of others; a loss is good
if the relative comes first.

    python examples/homologs.py protein ../shared/data/protein_homologs
    python examples/homologs.py dna ../shared/data/dna_homologs
"""

import csv
import pathlib
import random
import sys

import fstgrad as fg
from fstgrad.grammars import Grammar

LONGEST = 90


def read(folder, count):
    """Return (sequence, relative, strangers) of random pairs with short sequences."""
    with (pathlib.Path(folder) / "pairs.tsv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file, delimiter="\t") if _is_short(row)]
    rng = random.Random(0)
    for row in rng.sample(rows, count):
        others = [other for other in rows if other["family"] != row["family"]]
        yield row["seq_a"], row["seq_b"], [other["seq_b"] for other in rng.sample(others, 2)]


def _is_short(row):
    return max(len(row["seq_a"]), len(row["seq_b"])) <= LONGEST


def protein_losses(folder):
    """Return local alignment with BLOSUM62, the grammar of classes, and edit distance."""
    abc = fg.Alphabet("ACDEFGHIKLMNPQRSTVWY")
    matrix = pathlib.Path(folder) / "matrix_BLOSUM62.txt"
    return {
        "BLOSUM62 10/0.5": fg.SmithWaterman(abc, matrix=matrix, gap_open=10, gap_extend=0.5),
        "grammar protein": Grammar.load("protein").loss(abc),
        "edit distance": fg.EditDistance(abc),
    }


def dna_losses(folder):
    """Return local alignment with NUC.4.4, the grammar of mutations, and edit distance."""
    abc = fg.Alphabet("ACGT")
    matrix = pathlib.Path(folder).parent / "protein_homologs" / "matrix_NUC.4.4.txt"
    return {
        "NUC.4.4 10/0.5": fg.SmithWaterman(abc, matrix=matrix, gap_open=10, gap_extend=0.5),
        "grammar dna": Grammar.load("dna").loss(abc),
        "edit distance": fg.EditDistance(abc),
    }


def main(kind, folder, count=12):
    rows = list(read(folder, int(count)))
    losses = (protein_losses if kind == "protein" else dna_losses)(folder)
    print(f"{len(rows)} sequences of at most {LONGEST} letters, two strangers each")
    print(f"{'loss':<18}{'relative':>10}{'stranger':>10}{'first':>8}")
    for name, loss in losses.items():
        own = [loss(a, b) for a, b, _ in rows]
        other = [[loss(a, stranger) for stranger in strangers] for a, _, strangers in rows]
        first = sum(x < min(table) for x, table in zip(own, other, strict=True)) / len(rows)
        mean = sum(map(sum, other)) / sum(map(len, other))
        print(f"{name:<18}{sum(own) / len(rows):>10.2f}{mean:>10.2f}{first:>8.0%}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4) or sys.argv[1] not in ("protein", "dna"):
        sys.exit(__doc__)
    main(*sys.argv[1:])
