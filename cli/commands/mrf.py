"""`fstgrad mrf`: models in UAI files, and images as Markov random fields."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from typing import Any, cast

import click
import numpy as np

from fstgrad.cli.command import Group, option_group, reject_options
from fstgrad.cli.output import echo
from fstgrad.cli.parameter_types import (
    COUNT,
    FILE,
    NOT_NEGATIVE,
    POSITIVE,
    SEED,
    Number,
    Output,
    draws_option,
    gib_to_bytes,
    integer_from,
)
from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.mrf import uai
from fstgrad.mrf.decoding import DECODERS
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.mrf.inference import METHODS
from fstgrad.mrf.result import Annealed, Bounds, Inference
from fstgrad.mrf.sampling.chains import SAMPLERS, Sampler
from fstgrad.mrf.sampling.marginals import CONVERGED_R_HAT

_WRITE_MODEL = r"printf 'MARKOV\n2\n2 2\n1\n2 0 1\n4\n1 2 3 4\n' > model.uai"
_WRITE_IMAGE = r"printf 'P2\n3 2\n255\n0 9 250\n8 0 240\n' > noisy.pgm"

ESTIMATES = [name for name in METHODS if name != "max-product"]
PARTITIONS = ["exact", "bp", "trw", "mean-field", "bounds", "ais"]
LABELINGS = ["graph-cut", "expansion", "icm", "max-product"]
DRAWS = ["exact", "gibbs", "chromatic", "blocked", "metropolis", "swendsen-wang", "tempered"]

_MANY = 0.2  # share of pixels that noise alone seldom changes
_FAR, _FEW = 3.5, 0.002  # more deviations, and four times the share that normal noise has there
_SPLIT = 2.0  # deviations; the halves of normal noise have their means 1.6 apart


@dataclasses.dataclass(frozen=True)
class MethodOptions:
    """Options of the methods; None means the default of the method."""

    max_iter: int | None
    tol: float | None
    damping: float | None
    schedule: str | None
    samples: int | None
    burn_in: int | None
    chains: int | None
    threads: int | None
    max_gib: float | None

    def arguments(self, **more: Any) -> dict[str, Any]:
        """Return the given options as arguments of the methods; `max_gib` becomes bytes."""
        values = {name: value for name, value in vars(self).items() if value is not None}
        if "max_gib" in values:
            values["max_memory"] = max(1, gib_to_bytes(values.pop("max_gib")))
        return values | {name: value for name, value in more.items() if value is not None}


method_options = option_group(
    "options",
    MethodOptions,
    click.option(
        "--max-iter",
        type=COUNT,
        help="Maximum number of iterations of message passing or mean field.",
    ),
    click.option(
        "--tol",
        type=NOT_NEGATIVE,
        help="Stop when no message (in nats) or marginal changes by more than this; with bp and "
        "trw, models without loops are solved exactly in any case.",
    ),
    click.option(
        "--damping", type=NOT_NEGATIVE, help="Share of the old message in the new one, in [0, 1)."
    ),
    click.option(
        "--schedule",
        type=click.Choice(["flooding", "residual"]),
        help="Order of the messages: all at once, or the largest change first.",
    ),
    click.option("--samples", type=COUNT, help="Number of draws kept per chain."),
    click.option("--burn-in", type=integer_from(0), help="Sweeps discarded before the first draw."),
    click.option("--chains", type=COUNT, help="Number of independent chains."),
    click.option(
        "--threads", type=COUNT, help="Number of threads; the result does not depend on it."
    ),
    click.option("--max-gib", type=POSITIVE, help="Memory limit of method exact, in GiB."),
    heading="Iterations, draws, limits",
)
model_argument = click.argument("model", type=FILE)
evidence_option = click.option(
    "--evidence", type=FILE, help="A .evid file with the observed variables and their values."
)
seed_option = click.option("--seed", type=SEED, help="Random seed of methods that sample.")


def method_option(names: list[str]) -> Callable[..., Any]:
    """Return the option --method with these choices."""
    return click.option(
        "--method",
        type=click.Choice(names),
        default="exact",
        show_default=True,
        metavar="METHOD",
        help=f"One of {', '.join(names)}.",
    )


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
def mrf() -> None:
    """Markov random fields: UAI models (.uai, .evid) and images."""


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _load_model(path: str, evidence: str | None) -> tuple[PairwiseMRF, IntArray]:
    """Return the model given the evidence, and the label counts of the file's variables."""
    file = uai.read_model(path)
    model = file.to_mrf()
    if evidence is not None:
        model = model.condition(uai.read_evidence(evidence, file.sizes))
    return model, file.sizes


@contextlib.contextmanager
def _progress_bar(label: str, total: int) -> Iterator[Callable[[int, float], None] | None]:
    """Yield a callback that moves a progress bar; None if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done, _: bar.update(task, completed=done)


def _infer(model: PairwiseMRF, method: str, options: MethodOptions, seed: int | None) -> Inference:
    """Run a method with a progress bar; report its convergence on standard error."""
    arguments = options.arguments(rng=seed)
    if method in ("exact", "bounds", "ais"):
        result = model.infer(method, **arguments)
    else:
        total = int(arguments.get("samples", arguments.get("max_iter", 0))) or 1000
        with _progress_bar(method, total) as progress:
            result = model.infer(method, progress=progress, **arguments)
    _report_convergence(result, _parted(model, method))
    return result


def _parted(model: PairwiseMRF, method: str) -> str | None:
    """Return a line on a sampler whose chains hard zeros may keep apart, else None."""
    if method not in (*SAMPLERS, "tempered") or not model.has_hard_zeros:
        return None
    if model.is_forest and method == "blocked":
        return None
    others = "blocked or exact" if model.is_forest else "exact"
    return (
        "hard zeros may keep a chain from some labelings, however long it is; use --method "
        f"{others}"
    )


def _report_convergence(result: Inference, parted: str | None) -> None:
    if isinstance(result, Annealed):
        if not result.converged:
            echo(
                "ais missed the labelings of the highest scores, and log Z is larger; use --method "
                "exact or bounds",
                err=True,
            )
    elif result.standard_error is not None:
        echo(
            f"{result.method}: {result.iterations:,} draws, at least "
            f"{result.effective_samples:,.0f} effective, largest standard error "
            f"{result.standard_error.max():.2g}, R-hat {result.r_hat:.3f}",
            err=True,
        )
        if parted is not None:
            disagree = "the chains disagree: " if result.r_hat >= CONVERGED_R_HAT else ""
            echo(disagree + parted, err=True)
        elif np.isnan(result.r_hat):
            echo("one chain has no R-hat; give --chains 2 or more", err=True)
        elif not result.converged:
            echo("the chains disagree; use more --samples or --burn-in", err=True)
    elif isinstance(result, Bounds):
        if not result.converged:
            echo(f"the bounds are {result.upper - result.lower:.3g} nats apart", err=True)
    elif not result.converged:
        echo(
            f"{result.method} did not converge in {result.iterations} iterations (last change "
            f"{result.residuals[-1]:.2g}); try more --max-iter or, except with mean-field, "
            "--damping 0.5 or --schedule residual",
            err=True,
        )


@mrf.command(examples=(_WRITE_MODEL, "fstgrad mrf marginals model.uai"))
@model_argument
@method_option(ESTIMATES)
@evidence_option
@seed_option
@method_options
def marginals(
    model: str, method: str, evidence: str | None, seed: int | None, options: MethodOptions
) -> None:
    """Print the marginals of all variables, as a UAI MAR result."""
    loaded, sizes = _load_model(model, evidence)
    result = _infer(loaded, method, options, seed)
    if isinstance(result, Annealed):
        errors = cast(FloatArray, result.standard_error)
        echo(
            f"{method}: {result.effective_samples:,.0f} effective runs, largest standard error of "
            f"a marginal {errors.max():.2g}",
            err=True,
        )
    elif method in ("bp", "trw", "mean-field"):
        exact = ", exact if the graph has no loops" if method == "bp" else ""
        echo(f"{method}: these are approximations of the marginals{exact}", err=True)
    echo(uai.format_marginals(result.node[: len(sizes)], sizes), nl=False)


@mrf.command(examples=(_WRITE_MODEL, "fstgrad mrf partition model.uai --method bp"))
@model_argument
@method_option(PARTITIONS)
@evidence_option
@seed_option
@method_options
def partition(
    model: str, method: str, evidence: str | None, seed: int | None, options: MethodOptions
) -> None:
    """Print log10 Z as a UAI PR result, then ln Z and the kind of the value, such as exact."""
    loaded, _ = _load_model(model, evidence)
    is_plain = seed is None and options == MethodOptions(
        *[None] * len(dataclasses.fields(MethodOptions))
    )
    if method == "exact" and is_plain:
        value, kind = loaded.log_partition(), "exact"
    else:
        result = _infer(loaded, method, options, seed)
        value, kind = result.log_partition, result.kind
        if isinstance(result, Bounds):
            kind = f"{result.lower:.12g} to {result.upper:.12g}"
        elif isinstance(result, Annealed):
            kind = f"standard error {result.log_partition_error:.2g}"
    echo(uai.format_partition(value), nl=False)
    echo(f"ln Z = {value:.12g} ({kind})")


@mrf.command(name="map", examples=(_WRITE_MODEL, "fstgrad mrf map model.uai"))
@model_argument
@method_option(list(DECODERS))
@evidence_option
@seed_option
@method_options
def best(
    model: str, method: str, evidence: str | None, seed: int | None, options: MethodOptions
) -> None:
    """Print the best labeling found as a UAI MAP result, and its score to standard error."""
    loaded, sizes = _load_model(model, evidence)
    decoded = loaded.decode(method, **options.arguments(rng=seed))
    echo(uai.format_mode(decoded.labels[: len(sizes)]), nl=False)
    certainty = (
        "the distance from the best is unknown"
        if np.isinf(decoded.gap)
        else ("the best" if decoded.gap == 0 else f"within {decoded.gap:.2g} of the best")
    )
    if not decoded.converged:
        certainty += f"; {method} did not converge, try more --max-iter"
    echo(f"score {decoded.score:.12g} nats, {certainty}", err=True)


@mrf.command(examples=(_WRITE_MODEL, "fstgrad mrf sample model.uai -n 3 --seed 0"))
@model_argument
@draws_option("Number of labelings.", 10)
@click.option("--thin", type=COUNT, help="Sweeps between draws of a chain.  [default: 10]")
@method_option(DRAWS)
@evidence_option
@seed_option
@method_options
def sample(
    model: str,
    draws: int,
    thin: int | None,
    method: str,
    evidence: str | None,
    seed: int | None,
    options: MethodOptions,
) -> None:
    """Draw labelings, one per line: independently with method exact, else from one chain."""
    from fstgrad.mrf.sampling.marginals import draw

    used: set[str] = set() if method == "exact" else {"burn_in", "thin", "threads"}
    for name in sorted(set(options.arguments(thin=thin)) - used):
        option = "--max-gib" if name == "max_memory" else "--" + name.replace("_", "-")
        raise click.UsageError(f"{option} has no effect with --method {method}; leave it out")
    loaded, sizes = _load_model(model, evidence)
    if method == "exact":
        labelings = loaded.sample(draws, seed)
    else:
        parted = _parted(loaded, method)
        if parted is not None:
            echo(parted, err=True)
        labelings = draw(
            loaded, draws, sampler=cast(Sampler, method), **options.arguments(rng=seed, thin=thin)
        )
    for labels in labelings:
        echo(" ".join(map(str, labels[: len(sizes)].tolist())))


@mrf.command(examples=(_WRITE_IMAGE, "fstgrad mrf denoise noisy.pgm --levels 2 -o clean.png"))
@click.argument("image", type=FILE)
@click.option(
    "--levels",
    type=integer_from(2),
    default=2,
    show_default=True,
    help="Number of gray levels or colours.",
)
@click.option(
    "--level", "grays", type=Number(0.0, below=255.5), multiple=True,
    metavar="GRAY", help="A gray level, 0 to 255, given once for each, in place of --levels.  "
    "[default: by k-means, which mixes a level that few pixels have with others]",
)  # fmt: skip
@click.option(
    "--coupling", type=NOT_NEGATIVE, default=1.0, show_default=True,
    help="Score of two equal neighbours, in nats.",
)  # fmt: skip
@click.option(
    "--method", type=click.Choice([*LABELINGS, *ESTIMATES]), default="bp", show_default=True,
    metavar="METHOD", help=f"{_listed(LABELINGS)} find a labeling of high score; "
    f"{_listed(ESTIMATES)} compute marginals.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=Output(), required=True, help="Write the result to this PNG file."
)
@click.option(
    "--marginals",
    "panels",
    type=Output(),
    help="Write the marginals, one panel per label, to this PNG file.",
)
@click.option(
    "--plot",
    "figure",
    type=Output(),
    help="Write the image, the result and P(y) side by side to this PNG file.",
)
@click.option(
    "--contrast", type=NOT_NEGATIVE, default=0.0, show_default=True,
    help="How strongly label changes prefer the edges of the image; 0 for not at all.",
)  # fmt: skip
@click.option(
    "--noise", type=POSITIVE, help="Probability that a pixel has the level of another label.  "
    "[default: estimated]",
)  # fmt: skip
@seed_option
@method_options
def denoise(
    image: str,
    levels: int,
    grays: tuple[float, ...],
    coupling: float,
    method: str,
    output: str,
    panels: str | None,
    figure: str | None,
    contrast: float,
    noise: float | None,
    seed: int | None,
    options: MethodOptions,
) -> None:
    """Segment an image into gray levels or colours with a Potts model on its pixels."""
    from fstgrad.mrf import images

    given = None
    if grays:
        reject_options(("levels",), "beside --level")
        if len(set(grays)) < max(len(grays), 2):
            raise click.UsageError("--level: give two or more gray levels, each once")
        levels, given = len(grays), np.array(grays) / 255
    pixels = images.read_image(image, colour=not grays)
    model, means, rate, deviation = images.segmentation(
        pixels, levels, coupling=coupling, contrast=contrast, noise=noise, means=given
    )
    node = None
    if method in LABELINGS:
        if panels is not None:
            raise click.UsageError(
                f"--marginals needs a method that computes marginals; {method} does not"
            )
        labels = model.decode(method, **options.arguments(rng=seed)).labels
    else:
        node = _infer(model, method, options, seed).node
        labels = node.argmax(axis=1)
        if panels is not None:
            images.write_image(panels, images.marginal_panels(node, *pixels.shape[:2]))
    restored = means[labels].reshape(pixels.shape)
    images.write_image(output, restored)
    if figure is not None:
        images.write_image(figure, images.before_and_after(pixels, restored, node))
    squared = images.squared_distance(pixels, means)
    changed = np.mean(labels != squared.argmin(axis=2).ravel())
    far = np.mean(squared.min(axis=2) > (_FAR * deviation) ** 2)
    echo(
        f"{output}: {_shown_levels(means)}, noise {rate:.2g}{'' if noise else ' (estimated)'}, "
        f"{changed:.1%} of the pixels changed their level"
    )
    lost = means[np.bincount(labels, minlength=len(means)) == 0]
    if len(lost):
        echo(
            f"{_shown_levels(lost)} without a pixel; a smaller --coupling keeps more of them",
            err=True,
        )
    if not changed.any():
        echo(
            "no pixel changed its level: none differs enough from its neighbours; if the image is "
            "noisy, try a larger --coupling or --noise",
            err=True,
        )
    said = []
    if changed > _MANY:
        said.append("many pixels changed their level")
    if far > _FEW:
        said.append(f"{far:.2%} of the pixels are far from all levels")
    if means.ndim == 1 and np.diff(np.sort(means)).min(initial=1.0) < _SPLIT * deviation:
        said.append("two levels are as near as the halves of one")
    if said and changed.any() and not grays:
        echo(
            f"{' and '.join(said)}; if these are not the levels of the image, as where few pixels "
            "have one of them, give them with --level",
            err=True,
        )


def _shown_levels(means: FloatArray) -> str:
    many = f"{len(means)} level{'s' * (len(means) > 1)}"
    if means.ndim == 2:
        return many
    return f"{many} ({', '.join(f'{255 * gray:.0f}' for gray in means)})"
