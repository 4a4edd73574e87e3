r"""Examples of every command, shown below its help.

The lines of a command run in a shell, one after another, in an empty folder.
"""

import click

_PAIRS = r"printf 'kat\tcat\ndogg\tdog\n' > pairs.tsv"
_WORDS = r"printf 'cat\tK AE T\nact\tAE K T\ntack\tT AE K\n' > words.tsv"
_TRAIN = "fstgrad train words.tsv --tokens-y words --epochs 3 -o model.npz"
_SCORES = """python3 -c "import numpy; numpy.savez('scores.npz', s1=numpy.eye(4))\""""
_TREEBANK = r"printf '1\tGo\t_\tVERB\t_\t_\t0\troot\t_\t_\n\n' > gold.conllu"
_TABLES = """python3 -c "import numpy; numpy.savez('scores.npz', s1=numpy.eye(2))\""""
_MODEL = r"printf 'MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3 4\n' > model.uai"
_IMAGE = r"printf 'P2\n3 2\n255\n0 9 250\n8 0 240\n' > noisy.pgm"
_COUNTS = r"printf 'cat,dog\n0,2\n3,1\n1,4\n2,0\n' > counts.csv"
_FIT = "fstgrad grm fit counts.csv --alpha 0.1 -o model.npz"
_NEW = "fstgrad grammar new spelling"

EXAMPLES: dict[str, tuple[str, ...]] = {
    "grad": (
        _PAIRS,
        "fstgrad grad pairs.tsv --loss edit --order 2 -o gradient.npz",
        "fstgrad grad pairs.tsv --weights gradient.npz --objective risk --cap 3",
    ),
    "risk": (_PAIRS, "fstgrad risk pairs.tsv --loss edit --random-weights 0"),
    "loss": (
        _PAIRS,
        "fstgrad loss pairs.tsv --align",
        r"printf 'K AE T\tK AA T S\n' | fstgrad loss - --tokens-x words --tokens-y words",
        r"printf '>a\nHEAGAWGHEE\n>b\nPAWHEAE\n' > ab.fasta",
        "fstgrad loss ab.fasta --loss smith-waterman --matrix BLOSUM62 --gap-open 11",
    ),
    "marginals": (_PAIRS, "fstgrad marginals pairs.tsv --line 2 --top 5"),
    "align": (_WORDS, "fstgrad align words.tsv --tokens-y words --max-x 1 --with-posteriors"),
    "train": (_WORDS, _TRAIN),
    "predict": (_WORDS, _TRAIN, r"printf 'tac\n' | fstgrad predict model.npz - --nbest 2"),
    "evaluate": (_WORDS, _TRAIN, "fstgrad evaluate model.npz words.tsv --errors"),
    "compare": (
        _WORDS,
        _TRAIN,
        "fstgrad train words.tsv --tokens-y words --objective crf -o crf.npz",
        "fstgrad compare model.npz crf.npz words.tsv",
    ),
    "report": (
        _WORDS,
        _TRAIN,
        "fstgrad grad words.tsv --tokens-y words -o gradient.npz > lines.jsonl",
        "fstgrad report model.npz lines.jsonl gradient.npz --pairs words.tsv -o report.html",
    ),
    "completion": (
        "fstgrad completion bash > fstgrad.bash",
        ". ./fstgrad.bash",
    ),
    "doctor": ("fstgrad doctor",),
    "grammar list": ("fstgrad grammar list",),
    "grammar show": ("fstgrad grammar show keyboard",),
    "grammar build": (
        "fstgrad grammar build keyboard -o keyboard.far",
        r"printf 'cst\tcat\n' | fstgrad loss - --loss keyboard.far:keyboard",
    ),
    "grammar draw": ("fstgrad grammar draw damerau --symbols ab -o damerau.dot",),
    "grammar test": (_NEW, "fstgrad grammar test spelling.rules"),
    "grammar explain": ("fstgrad grammar explain keyboard cst cat",),
    "grammar new": (_NEW, "fstgrad grammar show spelling.rules"),
    "grammar fit": (_PAIRS, "fstgrad grammar fit edit pairs.tsv -o learned.far"),
    "grammar compare": (_PAIRS, "fstgrad grammar compare edit keyboard pairs.tsv"),
    "trees marginals": (_SCORES, "fstgrad trees marginals scores.npz -o marginals.npz"),
    "trees entropy": (_SCORES, "fstgrad trees entropy scores.npz"),
    "trees decode": (_SCORES, "fstgrad trees decode scores.npz -k 2"),
    "trees sample": (_SCORES, "fstgrad trees sample scores.npz -n 2 --seed 0"),
    "trees kl": (_SCORES, "fstgrad trees kl scores.npz scores.npz"),
    "trees evaluate": (
        _TREEBANK,
        _TABLES,
        "fstgrad trees evaluate gold.conllu --scores scores.npz",
    ),
    "mrf marginals": (_MODEL, "fstgrad mrf marginals model.uai"),
    "mrf partition": (_MODEL, "fstgrad mrf partition model.uai --method bp"),
    "mrf map": (_MODEL, "fstgrad mrf map model.uai"),
    "mrf sample": (_MODEL, "fstgrad mrf sample model.uai -n 3 --seed 0"),
    "mrf denoise": (_IMAGE, "fstgrad mrf denoise noisy.pgm --levels 2 -o clean.png"),
    "grm fit": (_COUNTS, _FIT),
    "grm top": (_COUNTS, _FIT, "fstgrad grm top model.npz"),
    "grm sample": (_COUNTS, _FIT, "fstgrad grm sample model.npz -n 3 --seed 0"),
    "grm score": (_COUNTS, _FIT, "fstgrad grm score model.npz counts.csv"),
    "grm report": (_COUNTS, _FIT, "fstgrad grm report model.npz counts.csv -n 100"),
}


def with_examples(command: click.Command, name: str) -> click.Command:
    """Add examples below the help of the command `name` and of its subcommands; return it."""
    if isinstance(command, click.Group):
        for part, subcommand in command.commands.items():
            with_examples(subcommand, f"{name} {part}")
    elif name in EXAMPLES:
        lines = [f"  {line}" for line in EXAMPLES[name]]
        command.epilog = "\n".join(["\b", "Examples:", *lines])
    return command
