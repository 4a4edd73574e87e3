"""Is a homolog nearer than a stranger?
====================================

This program compares alignment losses on families of proteins or of DNA.

Each sequence is aligned with a member of its own family (a relative) and with two members of other
families (strangers).  A loss is good if the relative has the least loss.

    python examples/homologs.py                        # domains of two families of Pfam
    python examples/homologs.py protein|dna FOLDER     # pairs.tsv with seq_a, seq_b, family
"""

import csv
import pathlib
import random
import sys
from itertools import pairwise

import fstgrad as fg
from fstgrad.grammars import Grammar

DATA = pathlib.Path(__file__).parents[1] / "data"
LONGEST = 90


def read(folder, count):
    """Yield (sequence, relative, two strangers) for `count` random pairs of short sequences."""
    rows = [row for row in (pairs(folder) if folder else domains()) if _is_short(row)]
    rng = random.Random(0)
    for row in rng.sample(rows, count):
        others = [other for other in rows if other["family"] != row["family"]]
        yield row["seq_a"], row["seq_b"], [other["seq_b"] for other in rng.sample(others, 2)]


def pairs(folder):
    """Return the rows of a file of pairs."""
    with (pathlib.Path(folder) / "pairs.tsv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def domains():
    """Return rows that pair each domain with the next one of its family."""
    families = {}
    for block in (DATA / "domains.fasta").read_text(encoding="utf-8").split(">")[1:]:
        head, sequence = block.split("\n", 1)
        families.setdefault(head.split()[1], []).append(sequence.replace("\n", ""))
    return [
        {"seq_a": a, "seq_b": b, "family": family}
        for family, sequences in families.items()
        for a, b in pairwise(sequences)
    ]


def _is_short(row):
    return max(len(row["seq_a"]), len(row["seq_b"])) <= LONGEST


def protein_losses():
    """Return local alignment with BLOSUM62, the grammar of classes, and edit distance."""
    abc = fg.Alphabet("ACDEFGHIKLMNPQRSTVWY")
    return {
        "BLOSUM62 10/0.5": fg.SmithWaterman(abc, matrix="BLOSUM62", gap_open=10, gap_extend=0.5),
        "grammar protein": Grammar.load("protein").loss(abc),
        "edit distance": fg.EditDistance(abc),
    }


def dna_losses():
    """Return local alignment with NUC.4.4, the grammar of mutations, and edit distance."""
    abc = fg.Alphabet("ACGT")
    return {
        "NUC.4.4 10/0.5": fg.SmithWaterman(abc, matrix="NUC.4.4", gap_open=10, gap_extend=0.5),
        "grammar dna": Grammar.load("dna").loss(abc),
        "edit distance": fg.EditDistance(abc),
    }


def main(kind="protein", folder=None, count=12):
    rows = list(read(folder, int(count)))
    losses = (protein_losses if kind == "protein" else dna_losses)()
    print(f"{len(rows)} sequences of at most {LONGEST} letters, two strangers each")
    shares = {}
    print(f"{'loss':<18}{'relative':>10}{'stranger':>10}{'first':>8}")
    for name, loss in losses.items():
        own = [loss(a, b) for a, b, _ in rows]
        other = [[loss(a, stranger) for stranger in strangers] for a, _, strangers in rows]
        first = sum(x < min(table) for x, table in zip(own, other, strict=True)) / len(rows)
        mean = sum(map(sum, other)) / sum(map(len, other))
        print(f"{name:<18}{sum(own) / len(rows):>10.2f}{mean:>10.2f}{first:>8.0%}")
        shares[name] = first
    return shares


if __name__ == "__main__":
    if len(sys.argv) not in (1, 3, 4) or sys.argv[1:2] not in ([], ["protein"], ["dna"]):
        sys.exit(__doc__)
    shares = main(*sys.argv[1:])
    name, loss = next(iter((protein_losses if sys.argv[1:2] != ["dna"] else dna_losses)().items()))
    sequence, relative, _ = next(read(sys.argv[2] if sys.argv[1:] else None, 1))
    figures = [
        fg.plot.alignment({f"a sequence and its relative, {name}": loss.align(sequence, relative)}),
        fg.plot.bars({"": shares}, xlabel="relative comes first", log=False),
    ]
