"""`fstgrad doctor`: print versions, and test for errors that OpenFst does not report."""

import importlib.metadata
import itertools
import platform
import shutil
import time
from collections.abc import Callable, Iterator

import click
import numpy as np

from fstgrad._version import __version__
from fstgrad.cli.command import Command
from fstgrad.cli.output import echo
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.errors import FstError, MissingDependencyError
from fstgrad.losses import EditDistance
from fstgrad.losses.transducers import string_acceptor
from fstgrad.openfst import (
    ArcType,
    Fst,
    FstArrays,
    compose,
    determinize,
    from_arrays,
    is_empty,
    shortest_distance,
    to_arrays,
)
from fstgrad.strings import softmax_margin

PACKAGES = ("numpy", "scipy", "numba", "click", "joblib", "rich", "lazy_loader")
# package -> (the extra that installs it, what needs it)
OPTIONAL = {
    "pynini": ("fst", "grammars in pynini, files of OpenFst, the reference engine"),
    "torch": ("torch", "fstgrad.torch"),
    "jax": ("jax", "fstgrad.jax"),
    "matplotlib": ("plot", "pictures"),
    "scikit-learn": ("grm", "root models, estimators"),
    "networkx": ("grm", "graphs of root models"),
    "conllu": ("trees", "treebanks"),
    "Pillow": ("mrf", "images"),
    "dask": ("dask", "clusters"),
    "distributed": ("dask", "clusters"),
}
# program -> what needs it
PROGRAMS = {"dot": "pictures of automata as SVG, PDF and PNG: apt install graphviz"}
ODD_WEIGHT = 314.15926535897932  # has more digits than pynini prints


class _CheckFailed(Exception):
    """A self-test got a wrong result."""


def require(condition: bool, result: str) -> str:
    """Return the text `found`; raise `_CheckFailed` with it if the condition is false."""
    if not condition:
        raise _CheckFailed(result)
    return result


def weights_pass_exactly() -> str:
    """Check that log64 weights are read bit for bit; pynini's own weights have nine digits."""
    fst = _two_paths("log64", ODD_WEIGHT, ODD_WEIGHT)
    read = to_arrays(fst).weight
    printed = abs(float(next(iter(fst.arcs(0))).weight) - ODD_WEIGHT)
    result = f"error {np.abs(read - ODD_WEIGHT).max():g} (read one by one: {printed:.1g})"
    return require(bool((read == ODD_WEIGHT).all()), result)


def determinization_keeps_precision() -> str:
    """Check that determinization with an explicit delta sums two paths to 1e-12 (relative)."""
    near = ODD_WEIGHT + 1e-9
    exact = -float(np.logaddexp(-ODD_WEIGHT, -near))
    total = _total(determinize(_two_paths("log64", ODD_WEIGHT, near), delta=1e-15))
    return require(abs(total - exact) <= 1e-12 * exact, f"error {abs(total - exact):.1g}")


def integer_costs_are_exact() -> str:
    """Check that tropical costs are float32: integers up to 2^24 are exact, 0.1 is not."""
    read = to_arrays(_two_paths("standard", 2.0**24, 0.1)).weight
    rounding = abs(read[1] - 0.1)
    result = f"2^24 {'exact' if read[0] == 2**24 else 'not exact'}, 0.1 off by {rounding:.1g}"
    return require(read[0] == 2.0**24 and 0 < rounding < 1e-8, result)


def mixed_arc_types_are_refused() -> str:
    """Check that composing a tropical with a log64 transducer raises an error."""
    try:
        compose(_two_paths("standard", 1.0, 1.0), _two_paths("log64", 1.0, 1.0))
    except FstError as error:
        return f"refused: {str(error).split(';')[0]}"
    raise _CheckFailed("composed without an error")


def empty_results_are_seen() -> str:
    """Check that `is_empty` detects an empty composition: start is -1, without an error."""
    abc = Alphabet("ab")
    left, right = (string_acceptor(abc, abc.encode(s), arc_type="log64") for s in "ab")
    return require(is_empty(compose(left, right)), "seen")


def brackets_are_symbols() -> str:
    """Check that square brackets, special in pynini's strings, are ordinary symbols."""
    abc = Alphabet("[]ab")
    acceptor = string_acceptor(abc, abc.encode("a[b]"), arc_type="log64")
    labels = to_arrays(acceptor).ilabel.tolist()
    return require(labels == [3, 1, 4, 2], f"labels {labels}")


def gradient_is_exact() -> str:
    """Check F of Eq. 1 under the edit distance against the sum over all 3^4 strings."""
    abc, gold = Alphabet("abc"), "abca"
    loss = EditDistance(abc)
    scores = np.random.default_rng(0).normal(size=(4, 3))
    value, _ = softmax_margin(scores, gold, loss.compile(gold))
    terms = [
        scores[range(4), y].sum() + loss(np.array(y), gold)
        for y in itertools.product(range(3), repeat=4)
    ]
    naive = np.logaddexp.reduce(terms) - scores[range(4), abc.encode(gold)].sum()
    error = abs(value - naive) / abs(naive)
    return require(error < 1e-12, f"relative error {error:.1g}")


CHECKS: dict[str, Callable[[], str]] = {
    "log64 weights pass exactly": weights_pass_exactly,
    "determinization keeps precision": determinization_keeps_precision,
    "integer costs are exact in float32": integer_costs_are_exact,
    "mixed arc types are refused": mixed_arc_types_are_refused,
    "empty compositions are seen": empty_results_are_seen,
    "brackets are symbols": brackets_are_symbols,
    "gradient equals enumeration": gradient_is_exact,
}


@click.command(cls=Command, examples=("fstgrad doctor",))
@click.option(
    "--warm",
    is_flag=True,
    help="Also compile the kernels of first steps for this processor; later runs start at once.",
)
def doctor(warm: bool) -> int:
    """Print versions and optional packages; test for errors that OpenFst does not report."""
    echo(f"fstgrad {__version__}, Python {platform.python_version()}, {platform.platform()}")
    for package in PACKAGES:
        echo(f"  {package:<14}{_version(package) or 'MISSING'}")
    echo("optional")
    for package, (extra, purpose) in OPTIONAL.items():
        remedy = f"not installed; for {purpose}: pip install 'fstgrad[{extra}]'"
        echo(f"  {package:<14}{_version(package) or remedy}")
    for program, purpose in PROGRAMS.items():
        echo(f"  {program:<14}{shutil.which(program) or f'not found; for {purpose}'}")
    echo("compiled kernels")
    for place, text in _kernels():
        echo(f"  {place:<14}{text}")
    failed = 0
    for name, check in CHECKS.items():
        try:
            verdict, result = "ok    ", check()
        except MissingDependencyError as error:
            verdict, result = "absent", str(error)
        except Exception as error:  # report every failure and continue
            verdict, result = "FAILED", str(error) or type(error).__name__
            failed += 1
        echo(f"{verdict} {name}: {result}")
    if warm:
        failed += _warm()
    return 1 if failed else 0


def _warm() -> int:
    """Compile the kernels of first steps for this processor; return the number of failures."""
    from fstgrad.core import precompile

    start = time.perf_counter()
    try:
        precompile.warm()
    except RuntimeError as error:
        echo(f"FAILED {error}")
        return 1
    count = len(precompile.read_manifest())
    echo(f"warm   {count} kernels for this processor: {time.perf_counter() - start:.1f} s")
    return 0


def _kernels() -> Iterator[tuple[str, str]]:
    """Yield what is known of the compiled kernels; remove those of the user long unused."""
    from fstgrad.core import kernel_cache

    yield "shipped", kernel_cache.describe_shipped()
    folder = kernel_cache.cache_folder()
    if folder is None:
        yield "yours", "no folder is writable: every process compiles (set NUMBA_CACHE_DIR)"
        return
    kernel_cache.trim(folder)
    files, size = kernel_cache.usage(folder)
    limit = kernel_cache.MAX_BYTES / 1e6
    yield "yours", f"{files}, {size / 1e6:.1f} MB (at most {limit:.0f} are kept), in {folder}"


def _version(package: str) -> str:
    """Return the installed version of a package; "" if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _two_paths(arc_type: ArcType, first: float, second: float) -> Fst:
    """Return an acceptor of the string (1,) with two parallel arcs of the given costs."""
    return from_arrays(
        FstArrays(
            arc_type=arc_type,
            start=0,
            final=np.array([np.inf, 0.0]),
            source=np.array([0, 0]),
            ilabel=np.array([1, 1]),
            olabel=np.array([1, 1]),
            nextstate=np.array([1, 1]),
            weight=np.array([first, second]),
        )
    )


def _total(fst: Fst) -> float:
    return float(shortest_distance(fst, delta=1e-15, reverse=True)[0])
