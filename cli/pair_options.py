"""Options that commands share: one frozen dataclass per group, and a decorator that fills it.

A command receives a group as one argument:

    @click.command(cls=Command)
    @reading_options
    def loss(reading: Reading) -> None: ...
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, cast

import click

from fstgrad.cli.command import Decorator, option_group, reject_options, was_given
from fstgrad.cli.loss_options import LossChoice, loss_options
from fstgrad.cli.parameter_types import (
    COUNT,
    FILE_OR_DASH,
    JOBS,
    NOT_NEGATIVE,
    POSITIVE,
    SEED,
    Input,
    NameOrFile,
    Output,
    integer_from,
)
from fstgrad.cli.rescoring import Rescoring, rescoring_options
from fstgrad.core.alphabet import STANDARD
from fstgrad.io import Tokens
from fstgrad.learning.objective import DEFAULT_CONSTANTS, ObjectiveConstants
from fstgrad.losses import MAX_STATES
from fstgrad.strings.budget import Budget
from fstgrad.strings.cap_choice import TOLERANCE
from fstgrad.strings.proposals import KINDS as PROPOSALS
from fstgrad.strings.proposals import Kind as Proposal


@dataclasses.dataclass(frozen=True)
class Reading:
    """Options that split the rows of a file of pairs into symbols."""

    tokens_x: Tokens
    tokens_y: Tokens
    alphabet: str | None


def reading_for_loss(reading: Reading, choice: LossChoice, columns: Sequence[str]) -> Reading:
    """Return a reading of `columns` as the words or characters that wer or cer counts.

    It raises UsageError if an option asks for other symbols.
    """
    if choice.loss not in ("wer", "cer"):
        return reading
    tokens: Tokens = "words" if choice.loss == "wer" else "chars"
    other = "cer" if choice.loss == "wer" else "wer"
    for name in columns:
        if getattr(reading, name) != tokens and was_given(name):
            flag = f"--{name.replace('_', '-')} {getattr(reading, name)}"
            raise click.UsageError(
                f"--loss {choice.loss} counts {'words' if other == 'cer' else 'characters'}; leave "
                f"{flag} out, or use --loss {other}"
            )
    return dataclasses.replace(reading, **cast(Any, dict.fromkeys(columns, tokens)))


@dataclasses.dataclass(frozen=True)
class ModelReading(Reading):
    """The same for a model; `decompose` is "nfd" if it decomposes texts to Unicode form NFD."""

    decompose: str | None = None


@dataclasses.dataclass(frozen=True)
class Compilation:
    """Options that compile a loss to an automaton; `cap`, `tolerance`, `prune` are in nats."""

    cap: float | Literal["auto"] | None
    tolerance: float
    prune: float | None
    engine: str
    max_states: int


@dataclasses.dataclass(frozen=True)
class Estimation:
    """Options that choose between exact, capped and sampled objectives."""

    method: str | None
    samples: int
    seed: int
    proposal: Proposal
    seconds: float


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Options of processes, caches (`cache_gib` in GiB) and continued runs."""

    jobs: int
    cache: str | None
    cache_gib: float
    journal: str | None


@dataclasses.dataclass(frozen=True)
class WeightOptions:
    """Options of the order and the weights of the q-grams."""

    order: int
    weights: str | None
    random_weights: int | None


@dataclasses.dataclass(frozen=True)
class ProblemOptions:
    """All options that define an objective over a file of pairs."""

    choice: LossChoice
    compilation: Compilation
    model: WeightOptions
    reading: Reading

    def __post_init__(self) -> None:
        """Read the targets as the loss counts them."""
        object.__setattr__(
            self, "reading", reading_for_loss(self.reading, self.choice, ("tokens_y",))
        )


@dataclasses.dataclass(frozen=True)
class LatticeOptions:
    """Options of lattices: their source, and the archives to write."""

    source: str | None
    symbols: str | None
    posteriors: str | None
    gradients: str | None
    rescoring: Rescoring


def parse_cap(text: str) -> float | Literal["auto"]:
    """Return a cap: a number >= 0 in nats, or "auto"."""
    if text == "auto":
        return "auto"
    number: float = NOT_NEGATIVE.convert(text, None, None)
    return number


# first lines of examples in the help
WRITE_PAIRS = r"printf 'kat\tcat\ndogg\tdog\n' > pairs.tsv"
WRITE_WORDS = r"printf 'cat\tK AE T\nact\tAE K T\ntack\tT AE K\n' > words.tsv"
TRAIN_MODEL = "fstgrad train words.tsv --tokens-y words --epochs 3 -o model.npz"

EXACTNESS = "Exact, capped or sampled"
ALPHABET = NameOrFile(tuple(STANDARD), first=True, dash=True)
TOKENS = click.Choice(["chars", "words"])

pairs_argument = click.argument("pairs", type=FILE_OR_DASH)

constant_options = option_group(
    "constants",
    ObjectiveConstants,
    click.option(
        "--temperature",
        type=POSITIVE,
        default=DEFAULT_CONSTANTS.temperature,
        show_default=True,
        help="raml: temperature of the target distribution, in nats.",
    ),
    click.option(
        "--epsilon",
        type=POSITIVE,
        default=DEFAULT_CONSTANTS.epsilon,
        show_default=True,
        help="direct: step size of the perturbation of the scores by the loss.",
    ),
)

skip_errors = click.option("--skip-errors", is_flag=True, help="Skip bad rows and count them.")

reading_options = option_group(
    "reading",
    Reading,
    click.option(
        "--tokens-x",
        type=TOKENS,
        default="chars",
        show_default=True,
        help="Symbols of column 1: characters or words.",
    ),
    click.option(
        "--tokens-y",
        type=TOKENS,
        default="chars",
        show_default=True,
        help="Symbols of column 2: characters or words; for --loss wer always words.",
    ),
    click.option(
        "--alphabet",
        type=ALPHABET,
        metavar="FILE|NAME",
        help=f"File with one symbol per line, or {', '.join(STANDARD)}.  "
        "[default: the symbols in the data]",
    ),
    heading="How the pairs are read",
)

cap_options = (
    click.option(
        "--cap",
        type=parse_cap,
        metavar="NATS|auto",
        help="Use min(loss, cap); auto raises the cap until the bounds are within --tolerance.  "
        "[default: no cap, except in train]",
    ),
    click.option(
        "--tolerance",
        type=NOT_NEGATIVE,
        default=TOLERANCE,
        show_default=True,
        help="With --cap auto, stop when the bounds are this close (nats).",
    ),
)

compile_options = option_group(
    "compilation",
    Compilation,
    *cap_options,
    click.option(
        "--prune",
        type=NOT_NEGATIVE,
        metavar="NATS",
        help="Leave out alignments that cost more than the best one plus this, as in Cortes et al. "
        "(2018): an approximation without a bound.  [default: none are left out]",
    ),
    click.option(
        "--engine",
        type=click.Choice(["layered", "openfst"]),
        default="layered",
        show_default=True,
        help="openfst is the reference engine; it is slow and stores costs in float32.",
    ),
    click.option(
        "--max-states",
        type=COUNT,
        default=MAX_STATES,
        show_default=True,
        help="Maximum number of states of a loss automaton.",
    ),
    heading=EXACTNESS,
)

method_options = option_group(
    "estimation",
    Estimation,
    click.option(
        "--method",
        type=click.Choice(["exact", "capped", "sampled", "auto"]),
        help="auto uses, for each pair, the first of exact, capped (at --cap, or within "
        "--tolerance) and sampled that --max-states and --seconds allow.  [default: capped with "
        "--cap, else exact, except in train]",
    ),
    click.option(
        "--samples",
        type=integer_from(2),
        default=1000,
        show_default=True,
        help="sampled: number of strings drawn for each pair.",
    ),
    click.option("--seed", type=SEED, default=0, show_default=True, help="sampled: random seed."),
    click.option(
        "--proposal",
        type=click.Choice(PROPOSALS),
        default="auto",
        show_default=True,
        help="sampled, auto: the distribution from which strings are drawn; risk allows auto, band "
        "and plain.",
    ),
    click.option(
        "--seconds",
        type=POSITIVE,
        default=Budget().seconds,
        show_default=True,
        help="auto: time budget for one pair, in seconds of one core.",
    ),
    heading=EXACTNESS,
)


def cache_gib_option(default: float) -> Decorator:
    """Return the option --cache-gib: memory for compiled losses, in GiB."""
    return click.option(
        "--cache-gib",
        type=NOT_NEGATIVE,
        default=default,
        show_default=True,
        metavar="GiB",
        help="Memory of all processes for compiled losses that are kept for reuse, in GiB.",
    )


running_options = option_group(
    "running",
    RunOptions,
    click.option(
        "--jobs",
        type=JOBS,
        default=1,
        show_default=True,
        help="Number of processes; the results do not depend on it.",
    ),
    click.option(
        "--cache",
        type=click.Path(file_okay=False),
        metavar="FOLDER",
        help="Keep compiled losses in this folder for later runs.",
    ),
    cache_gib_option(0.25),
    click.option(
        "--journal",
        type=Output(companions=(".npz",)),
        metavar="FILE.jsonl",
        help="Write the lines to this file, and continue where an earlier run on the same pairs "
        "stopped; FILE.jsonl.npz holds the sums so far.",
    ),
    heading="Processes and continued runs",
)

weight_options = option_group(
    "model",
    WeightOptions,
    click.option(
        "--order",
        type=COUNT,
        default=2,
        show_default=True,
        help="Order q of the model: the features count q-grams.",
    ),
    click.option(
        "--weights",
        type=Input(),
        metavar="FILE.npz",
        help="File with the array `weights`: one axis of n symbols per symbol of a q-gram.  "
        "[default: 0]",
    ),
    click.option(
        "--random-weights",
        type=SEED,
        metavar="SEED",
        help="Draw independent standard normal weights with this seed.",
    ),
    heading="Weights of the q-grams",
)

problem_options = option_group(
    "options", ProblemOptions, loss_options, compile_options, weight_options, reading_options
)

symbols_option = click.option(
    "--symbols",
    type=Input(),
    metavar="FILE",
    help="Symbol table of lattices in text with numeric labels, and of FSTs without a table, such "
    "as Kaldi's words.txt.",
)


def unit_of(kind: str) -> str:
    """Return the unit of an objective after a number; that of a risk is the unit of the loss."""
    return " (in the unit of the loss)" if kind.startswith("risk") else " nats"


lattice_options = option_group(
    "lattices",
    LatticeOptions,
    click.option(
        "--lattices",
        "source",
        type=Input(folders=True),
        metavar="FAR_OR_DIR",
        help="Archive, folder or file of acceptors with costs as weights.  Column 1 names an "
        "acceptor; column 2 is its target.",
    ),
    symbols_option,
    click.option(
        "--posteriors",
        type=Output(),
        metavar="FILE.tsv|FILE.far",
        help="With --lattices: write the posteriors of the arcs, as a table of words (.tsv), or as "
        "FSTs with the weights -log P.",
    ),
    click.option(
        "--gradients",
        type=Output(),
        metavar="FILE.tsv|FILE.far",
        help="With --lattices: write the derivatives with respect to the scores of the arcs, in "
        "the same forms.",
    ),
    rescoring_options,
    heading="Lattices",
)


# options that have no effect without a loss
NEED_LOSS = (
    "cap",
    "tolerance",
    "prune",
    "engine",
    "max_states",
    "method",
    "samples",
    "seed",
    "proposal",
    "seconds",
    "cache",
    "cache_gib",
)


# options that define a loss: the fields of `LossChoice`
LOSS_PARAMETERS = tuple(field.name for field in dataclasses.fields(LossChoice))


def check_method_options(estimation: Estimation, cap: object) -> None:
    """Reject options of methods other than the chosen one.

    Raises
    ------
    click.UsageError
        An option has no effect with this `estimation.method` and `cap`.
    """
    if estimation.method not in ("sampled", "auto"):
        reject_options(("samples", "proposal"), "without --method sampled or auto")
    if estimation.method != "auto":
        reject_options(("seconds",), "without --method auto")
    if cap != "auto" and estimation.method != "auto":
        reject_options(("tolerance",), "without --cap auto or --method auto")
    if estimation.method == "sampled":
        reject_options(("cap", "prune", "engine", "max_states", "cache"), "with --method sampled")


def check_constants(objective: str) -> None:
    """Reject constants of objectives other than the chosen one.

    Raises
    ------
    click.UsageError
        --temperature without the objective raml, or --epsilon without direct.
    """
    for kind, name in (("raml", "temperature"), ("direct", "epsilon")):
        if objective != kind:
            reject_options((name,), f"without --objective {kind}")
