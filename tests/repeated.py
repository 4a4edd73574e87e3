"""The commands whose results are the same to the last bit in every run; `faults` runs them.

python -m tests.repeated FOLDER NUMBER ...    # runs some, one after another, in one process
"""

import contextlib
import io
import os
import pathlib
import re
import sys

import numpy as np

from fstgrad.cli.main import main
from tests.helpers.commands import LEAVES, run_examples

FIELD = "MARKOV\n3\n2 2 2\n3\n1 0\n2 0 1\n2 1 2\n\n2\n0.4 0.6\n\n4\n1 2 3 4\n\n4\n2 1 1 2\n"
SENTENCE = (
    "# sent_id = s\n1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_\n2\tdog\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
)
LINES = "".join(f"x{i}\t{a}{b}{c}\n" for i, (a, b, c) in enumerate(
    (a, b, c) for a in "abcd" for b in "abcd" for c in "abcd"))  # fmt: skip
SECONDS = re.compile(rb'"seconds": [0-9.e-]+|in [0-9.]+ m?s\b|[0-9.]+ seconds')
_TRAIN = "train pairs.tsv --epochs 2 --window 1"
_RULES = "grammar new mine --template edit"
# a name and the command lines of one run
_RUNS = (
    *((f"grad --order {q}", f"grad pairs.tsv --order {q} --random-weights 1 -o o.npz")
      for q in (1, 2, 3)),
    ("grad --method sampled", "grad pairs.tsv --method sampled --samples 20 --seed 1 -o o.npz"),
    ("grad --method auto", "grad pairs.tsv --method auto --seed 1 -o o.npz"),
    ("grad --engine openfst", "grad pairs.tsv --engine openfst -o o.npz"),
    ("grad --jobs 2", "grad pairs.tsv --jobs 2 -o o.npz"),
    ("risk", "risk pairs.tsv"), ("loss", "loss pairs.tsv --loss osa --align"),
    ("marginals", "marginals pairs.tsv -o o.npz --plot o.svg"),
    ("align", "align pairs.tsv --max-iter 3"),
    ("train, predict", f"{_TRAIN} -o m.npz", "predict m.npz x.txt --nbest 2"),
    ("evaluate", f"{_TRAIN} --order 1 -o m.npz", "evaluate m.npz pairs.tsv"),
    ("compare", f"{_TRAIN} -o a.npz", f"{_TRAIN} --order 1 -o b.npz",
     "compare a.npz b.npz pairs.tsv --resamples 20"),
    # a page of a sequence model shows the seconds of each epoch
    ("report", "grm fit counts.csv --alpha 0.1 --threads 1 --quiet -o r.npz",
     "grad pairs.tsv -o o.npz", "report r.npz o.npz -o r.html"),
    ("grammar draw", "grammar draw caseless --symbols abAB -o x.dot"),
    ("grammar build", "grammar build caseless --symbols abAB -o g.far"),
    ("grammar explain", _RULES, "grammar explain mine.py a b -k 2"),
    ("grammar fit", "grammar fit edit pairs.tsv --max-iter 3 --held-out 0 -o l.tsv"),
    ("grammar compare", "grammar fit edit pairs.tsv --max-iter 3 --held-out 0 -o l.far",
     "grammar compare edit l.far pairs.tsv --candidates 3"),
    ("trees marginals", "trees marginals t.npz -o o.npz"),
    ("trees sample", "trees sample t.npz --seed 1 -n 3"),
    ("trees decode, entropy", "trees decode t.npz -k 3", "trees entropy t.npz"),
    ("trees kl, evaluate", "trees kl t.npz u.npz", "trees evaluate s.conllu --scores s.npz"),
    ("mrf marginals", "mrf marginals m.uai --method bp"),
    ("mrf sample", "mrf sample m.uai -n 3 --seed 1"),
    ("mrf partition, map", "mrf partition m.uai", "mrf map m.uai"),
    ("mrf denoise", "mrf denoise i.png -o o.png"),
    ("grm fit, sample", "grm fit counts.csv --alpha 0.1 --threads 1 --quiet -o r.npz",
     "grm sample r.npz -n 2 --seed 1 --burn-in 2"),
    ("grm top, score, report", "grm fit counts.csv --alpha 0.1 --threads 2 --quiet -o r.npz",
     "grm top r.npz", "grm score r.npz counts.csv", "grm report r.npz counts.csv -n 4"),
)  # fmt: skip

# other commands repeat the examples of their help
OF_EXAMPLES = [
    name
    for name in LEAVES
    if not any(f"{line} ".startswith(f"{name} ") for _, *lines in _RUNS for line in lines)
]
REPEATED = (*_RUNS, *((name, *LEAVES[name].examples) for name in OF_EXAMPLES))


def write_inputs(place: pathlib.Path) -> None:
    """Write what the commands read."""
    from PIL import Image

    rng = np.random.default_rng(0)
    (place / "pairs.tsv").write_text(LINES)
    np.savetxt(place / "counts.csv", rng.poisson(1.0, (60, 8)), fmt="%d", delimiter=",")
    (place / "m.uai").write_text(FIELD)
    (place / "x.txt").write_text("x1\nx12\n")
    (place / "s.conllu").write_text(SENTENCE)
    np.savez(place / "t.npz", s=rng.normal(size=(6, 6)))
    np.savez(place / "u.npz", s=rng.normal(size=(6, 6)))
    np.savez(place / "s.npz", s=rng.normal(size=(3, 3)))
    Image.fromarray(rng.integers(0, 255, size=(6, 7)).astype(np.uint8)).save(place / "i.png")


def run_commands(folder: pathlib.Path, number: int) -> None:
    """Run the command lines of an entry in a folder of its own; out.txt is what they printed."""
    place = folder / str(number)
    place.mkdir(parents=True)
    write_inputs(place)
    os.chdir(place)
    name, *lines = REPEATED[number]
    if name in OF_EXAMPLES:
        done = run_examples(name, place)
        if done.returncode:
            raise RuntimeError(f"{name}: its examples gave {done.returncode}: {done.stderr}")
        (place / "out.txt").write_text(done.stdout)
        return
    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    with contextlib.redirect_stdout(out):
        for line in lines:
            try:
                main(line.split())
            except SystemExit as stop:
                if stop.code:
                    raise RuntimeError(f"{name}: {line} gave {stop.code}") from stop
    out.flush()
    (place / "out.txt").write_bytes(out.buffer.getvalue())  # type: ignore[attr-defined]


if __name__ == "__main__":
    for one in sys.argv[2:]:
        run_commands(pathlib.Path(sys.argv[1]).resolve(), int(one))
