"""The commands whose results are the same to the last bit in every run; `faults` runs them."""

import re

FIELD = "MARKOV\n3\n2 2 2\n3\n1 0\n2 0 1\n2 1 2\n\n2\n0.4 0.6\n\n4\n1 2 3 4\n\n4\n2 1 1 2\n"
SECONDS = re.compile(rb'"seconds": [0-9.e-]+|in [0-9.]+ m?s\b')
_TRAIN = "train pairs.tsv --epochs 2 --window 1"
# a name and the command lines of one run
REPEATED = (
    *((f"grad --order {q}", f"grad pairs.tsv --order {q} --random-weights 1 -o o.npz")
      for q in (1, 2, 3)),
    ("grad --method sampled", "grad pairs.tsv --method sampled --samples 20 --seed 1 -o o.npz"),
    ("grad --engine openfst", "grad pairs.tsv --engine openfst -o o.npz"),
    ("grad --jobs 2", "grad pairs.tsv --jobs 2 -o o.npz"),
    ("risk", "risk pairs.tsv"), ("loss", "loss pairs.tsv --loss osa --align"),
    ("marginals", "marginals pairs.tsv -o o.npz"), ("align", "align pairs.tsv --iterations 3"),
    ("train, predict", f"{_TRAIN} -o m.npz", "predict m.npz x.txt --nbest 2"),
    ("evaluate", f"{_TRAIN} --order 1 -o m.npz", "evaluate m.npz pairs.tsv"),
    ("compare", f"{_TRAIN} -o a.npz", f"{_TRAIN} --order 1 -o b.npz",
     "compare a.npz b.npz pairs.tsv --resamples 20"),
    ("grammar fit", "grammar fit edit pairs.tsv --iterations 3 --held-out 0 -o l.tsv"),
    ("trees marginals", "trees marginals t.npz -o o.npz"),
    ("trees sample", "trees sample t.npz --seed 1 -k 3"),
    ("mrf marginals", "mrf marginals m.uai --method bp"),
    ("mrf sample", "mrf sample m.uai -k 3 --seed 1"),
    ("grm fit, sample", "grm fit counts.csv --alpha 0.1 --jobs 1 --quiet -o r.npz",
     "grm sample r.npz -n 2 --seed 1 --burn-in 2"),
)  # fmt: skip
