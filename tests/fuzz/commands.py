"""Command lines: valid ones with a damaged file, or with other options of the command."""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import numpy as np

from fstgrad.cli.main import fstgrad
from tests.fuzz.mutations import NUMBERS, damaged
from tests.fuzz.seeds import SMALL

# {NAME} stands for a seed, {out} for a new file; each line runs without an error
TEMPLATES = [
    "grad {pairs.tsv} --weights {weights.npz} -o {out}.npz {small}",
    "grad {pairs.tsv} --alphabet {alphabet.txt} --loss edit --confusion {confusion.tsv} {small}",
    "grad {pairs.tsv} --loss smith-waterman --matrix {matrix.txt} --gap-open 1 {small}",
    "grad {pairs.tsv} --loss {loss.txt} --random-weights 1 {small}",
    "grad {pairs.tsv} --loss {loss.fst} {small}",
    "grad {pairs.tsv} --loss {loss.far}:edit {small}",
    "grad {pairs.tsv} --journal {lines.jsonl} {small}",
    "grad {pairs.tsv} --loss ngram --smoothing 0.5 --method sampled --samples 5",
    "risk {pairs.tsv} --prune 1 --random-weights 1",
    "grad {named.tsv} --lattices {lattices.far} --gradients {out}.far --posteriors {out}p.far "
    "{small}",
    "risk {named.tsv} --lattices {lattices.far} --posteriors {out}.far {small}",
    "risk {named.tsv} --lattices {numbers.lat} --symbols {symbols.txt} {small}",
    "risk {words.tsv} --tokens-y words --tokens-x words --cap 2 {small}",
    "loss {pairs.tsv}",
    "score {scored.csv} {scored.csv} --by speaker --align sclite --html {out}.html --resamples 20",
    "score {inputs.txt} {words.tsv} --loss cer --compare {inputs.txt} --json --resamples 20",
    "score {scored.csv} {scored.csv} --drop c --replace {spellings.tsv} --resamples 20",
    "score {lattices.far} {named.tsv} --decode oracle --loss cer -o {out}.tsv --resamples 20",
    "score {lattices.far} {named.tsv} --word-costs {costs.txt} --resamples 20",
    "loss {pairs.tsv} --loss alignment --matrix {matrix.txt} --gap-open 2 --gap-extend 1",
    "loss {pairs.tsv} --loss caseless --skip-errors",
    "loss {pairs.tsv} --loss {grammar.py}",
    "loss {pairs.tsv} --loss {small.rules} --align",
    "loss {pairs.tsv} --loss osa --align",
    "loss {pairs.tsv} --loss smith-waterman --align",
    "grad {pairs.tsv} --loss {small.rules} --order 1 {small}",
    "grad {pairs.tsv} --cap auto --tolerance 0.1 {small}",
    "grad {pairs.tsv} --engine openfst {small}",
    "grad {pairs.tsv} --method auto --cache {out}.cache --top 2 {small}",
    "risk {named.tsv} --lattices {lattices.far} --gradients {out}.far --posteriors {out}p.far",
    "risk {pairs.tsv} --journal {out}.jsonl -o {out}.npz {small}",
    "align {pairs.tsv} --max-iter 2 --with-posteriors",
    "align {pairs.tsv} --max-iter 2 --json --skip-errors",
    "align {words.tsv} --tokens-x words --tokens-y words --max-x 1 --no-empty-x --max-iter 2",
    "marginals {pairs.tsv} --weights {weights.npz} -o {out}.npz --plot {out}.svg {small}",
    "train {pairs.tsv} --epochs 1 --objective softmax-margin --window 1 --span 1 -o {out} {small}",
    "train {pairs.tsv} --epochs 1 --objective risk --validation {pairs.tsv} -o {out} {small}",
    "train {tagged.tsv} --tags 3 --epochs 1 --objective softmax-margin --span 1 "
    "--plot {out}.json -o {out} {small}",
    "train {pairs.tsv} --alignment em --optimizer lbfgs --epochs 1 --objective softmax-margin "
    "--span 1 -o {out} {small}",
    "train {pairs.tsv} --alignment none --method sampled --samples 4 --epochs 1 "
    "--objective softmax-margin -o {out}",
    "train {pairs.tsv} --epochs 1 --objective softmax-margin --warm-start {trained.npz} -o {out} "
    "{small}",
    "predict {trained.npz} {inputs.txt} --nbest 2",
    "predict {tags.npz} {tagged.txt}",
    "evaluate {trained.npz} {pairs.tsv}",
    "evaluate {trained.npz} {pairs.tsv} --errors --loss osa",
    "evaluate {tags.npz} {tagged.tsv} --errors",
    "compare {trained.npz} {other.npz} {pairs.tsv} --resamples 20",
    "grammar explain caseless a b --alphabet {alphabet.txt}",
    "grammar list",
    "grammar new {out} --template context",
    "grammar new {out} --template edit",
    "grammar explain {small.rules} ab ba -k 2",
    "grammar explain caseless Ab aB --symbols abAB",
    "grammar fit {small.rules} {pairs.tsv} -o {out}.far --max-iter 2 --held-out 0 --tie rule "
    "--table {out}.tsv",
    "grammar fit edit {pairs.tsv} -o {out}.tsv --max-iter 2 --rank {words.txt} --candidates 3",
    "grammar fit {learned.far} {pairs.tsv} -o {out}.fst --max-iter 2 --given target",
    "grammar compare edit {small.rules} {pairs.tsv} --words {words.txt} --candidates 3",
    "grammar compare edit {learned.far} {pairs.tsv} --candidates 3",
    "grammar compare {small.rules} edit {pairs.tsv} --candidates 3",
    "grammar show {small.rules}",
    "grammar show caseless",
    "grammar build caseless --symbols ab -o {out}.far",
    "grammar test {grammar.py}",
    "grammar build {small.rules} -o {out}.far",
    "grammar test {small.rules}",
    "grammar draw caseless --symbols ab -o {out}.dot",
    "trees marginals {scores.npz} -o {out}.npz",
    "trees entropy {batch.npz}",
    "trees entropy {scores.npz} -o {out}.npz",
    "trees sample {one.npz} --conllu {gold.conllu} --seed 1 -o {out}.conllu",
    "trees decode {scores.npz} -k 2",
    "trees sample {scores.npz} --seed 1 -n 2",
    "trees kl {scores.npz} {scores.npz}",
    "trees evaluate {gold.conllu} --scores {one.npz}",
    "trees compare {gold.conllu} {gold.conllu} {gold.conllu} --resamples 20",
    "trees decode {one.npz} --conllu {gold.conllu} --decode mbr -o {out}.conllu",
    "trees decode {labeled.npz} --conllu {gold.conllu} --labels {labels.txt} -o {out}.conllu",
    "trees sample {scores.npz} --single-root -n 2 --distinct",
    "trees entropy {scores.npz} --order 2 --projective",
    "mrf marginals {model.uai} --evidence {model.evid}",
    "mrf partition {model.uai} --method bp",
    "mrf map {model.uai}",
    "mrf marginals {model.uai} --method gibbs --samples 40 --burn-in 2 --seed 1",
    "mrf sample {model.uai} -n 2 --seed 1",
    "mrf denoise {image.png} -o {out}.png --method icm",
    "mrf denoise {image.png} -o {out}.png --marginals {out}2.png --plot {out}3.png",
    "grm fit {counts.csv} --alpha 0.1 --threads 1 --quiet -o {out}.npz",
    "grm fit {counts.npz} --alpha 0.1 --threads 1 --quiet -o {out}.npz",
    "grm fit {counts.npy} --alpha 0.1 --threads 1 --quiet -o {out}.npz",
    "grm fit {counts.mtx} --alpha 0.1 --threads 1 --quiet -o {out}.npz",
    "grm fit {counts.mat} --variable X --alpha 0.1 --threads 1 --quiet -o {out}.npz",
    "grm fit {dense.npz} --alpha 0.1 --threads 1 --quiet -o {out}.npz",
    "grm fit {counts.csv} --covariates {column.csv} --alpha 0.5 --threads 1 --quiet -o {out}.npz",
    "grm fit {counts.csv} --offset {column.csv} --alpha 0.5 --threads 1 --quiet -o {out}.npz",
    "grm score {roots.npz} {counts.csv} --weights {column.csv}",
    "grm top {roots.npz}",
    "grm sample {roots.npz} -n 2 --seed 1 --burn-in 2",
    "grm sample {roots.npz} -n 2 --seed 1 --burn-in 2 -o {out}.csv",
    "grm fit {counts.csv} --base hurdle-poisson --alpha 1 --checkpoint {out}.k -o {out}.npz",
    "grm fit {counts.csv} --k 3 --stagewise --symmetrize average --alpha 1 -o {out}.npz",
    "grm report {roots.npz} {counts.csv} -n 4",
    "grm score {roots.npz} {counts.csv}",
    "grm stability {roots.npz} {counts.csv} -n 2",
    "grm fit {counts.csv} --alpha ebic --threads 1 --quiet -o {out}.npz",
    "report {roots.npz} -o {out}.html --counts {counts.csv}",
    "report {trained.npz} {lines.jsonl} -o {out}.html --pairs {pairs.tsv}",
    "report {roots.npz} {other.npz} -o {out}.html --top 2",
    "completion bash",
    "doctor",
]
_SLOW = {"jobs", "threads", "epochs", "samples", "burn_in", "thin", "chains", "max_iter", "count",
         "n", "levels", "max_states", "nbest", "k"}  # fmt: skip
_VALUES = (*NUMBERS, "auto", "words", "edit", "none", "2", "0.5", "-", "/", "/dev/null", "é\x1b[2J")


class Case(NamedTuple):
    """A command line, and the files beside it."""

    arguments: list[str]
    files: dict[str, bytes]


def fill(template: str, seeds: pathlib.Path, out: pathlib.Path) -> Case:
    """Return the command line of a template."""
    words, files = [], {}
    for word in template.split():
        if word == "{small}":
            words += SMALL.split()
        elif "{out}" in word:
            words.append(word.replace("{out}", str(out / "out")))
        elif "{" in word:
            begin, name, end = _split(word)
            files[name] = (seeds / name).read_bytes()
            words.append(f"{begin}{out / name}{end}")
            if name == "lines.jsonl":
                files["lines.jsonl.npz"] = (seeds / "lines.jsonl.npz").read_bytes()
        else:
            words.append(word)
    return Case(words, files)


def random_case(seeds: pathlib.Path, out: pathlib.Path, rng: np.random.Generator) -> Case:
    """Return a case with a damaged file, other options, or both."""
    case = fill(TEMPLATES[rng.integers(len(TEMPLATES))], seeds, out)
    kind = rng.integers(4)
    if kind != 0 and case.files:
        name = list(case.files)[rng.integers(len(case.files))]
        case.files[name] = damaged(case.files[name], name, rng)
    if kind == 0 or kind == 3 or not case.files:
        for _ in range(int(rng.integers(1, 4))):
            case.arguments.extend(_option(case, out, rng))
    if rng.integers(25) == 0:
        del case.arguments[rng.integers(len(case.arguments))]
    return case


def _option(case: Case, out: pathlib.Path, rng: np.random.Generator) -> Sequence[str]:
    options = _options_of(case.arguments)
    if not options:
        return []
    option = options[rng.integers(len(options))]
    flag = option.opts[rng.integers(len(option.opts))]
    if option.is_flag:
        return [flag]
    kind: Any = option.type
    if isinstance(kind, click.Choice) and rng.integers(4):
        return [flag, kind.choices[rng.integers(len(kind.choices))]]
    if isinstance(kind, click.Path) and rng.integers(4):
        pool = [*case.files, "none", "out", "pairs.tsv/x", "."]
        return [flag, str(out / pool[rng.integers(len(pool))])]
    if option.name in _SLOW:
        return [flag, ("1", "2", "3", "0", "-1", "nan", "x", "1e9")[rng.integers(8)]]
    if rng.integers(3) == 0:
        return [flag, ("1", "2", "0.5", "0", "3")[rng.integers(5)]]
    return [flag, _VALUES[rng.integers(len(_VALUES))].replace("\0", "")]


def _options_of(arguments: list[str]) -> list[click.Option]:
    context = click.Context(fstgrad)
    command: click.Command | None = fstgrad
    for word in arguments:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(context, word)
    found = [] if command is None else command.params
    return [p for p in found if isinstance(p, click.Option) and p.name != "help"]


def _split(word: str) -> tuple[str, str, str]:
    begin, _, rest = word.partition("{")
    name, _, end = rest.partition("}")
    return begin, name, end
