"""`fstgrad grm`: fit, read, sample and score generalized root models of counts."""

import csv
import dataclasses
import io
import re
import sys
from collections.abc import Iterable
from typing import Any, Literal

import click
import numpy as np

from fstgrad.cli.command import Group, option_group, reject_options
from fstgrad.cli.commands.grm_tables import (
    TableLayout,
    columns_in_order,
    layout_options,
    read_tables,
    single_column,
)
from fstgrad.cli.output import echo, note
from fstgrad.cli.parameter_types import (
    COUNT,
    FILE,
    POSITIVE,
    SEED,
    THREADS,
    Number,
    Output,
    draws_option,
    gib_to_bytes,
    integer_from,
)
from fstgrad.core.checks import BoolArray, FloatArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.grm.design import MAX_MEMORY
from fstgrad.grm.families import BASES, resolve
from fstgrad.grm.parameters import ENTRIES
from fstgrad.io import Table, listed, replacing, write_text

_WRITE_COUNTS = r"printf 'cat,dog\n0,2\n3,1\n1,4\n2,0\n' > counts.csv"
_FIT = "fstgrad grm fit counts.csv --alpha 0.1 -o model.npz"

OUTPUT = Output()


@dataclasses.dataclass(frozen=True)
class RowTables:
    """Files with a value, or with covariates, for each row of the counts."""

    covariates: str | None
    offset: str | None
    weights: str | None


row_tables = option_group(
    "tables",
    RowTables,
    click.option(
        "--covariates", type=FILE, help="Table of the covariates of the rows, as in the fit."
    ),
    click.option("--offset", type=FILE, help="Table of the offsets of the rows, as in the fit."),
    click.option("--weights", type=FILE, help="Table of the weights of the rows."),
)


class Alpha(click.ParamType):  # type: ignore[type-arg]
    """A number > 0, or the name of a criterion that chooses it."""

    name = "float|cv|ebic"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a float, "cv" or "ebic"."""
        if value in ("cv", "ebic"):
            return value
        try:
            return POSITIVE.convert(value, param, ctx)
        except click.BadParameter as error:
            self.fail(f"{error.message}; give a number > 0, cv or ebic", param, ctx)


@click.group(cls=Group)
def grm() -> None:
    """Generalized root models: k-wise graphical models of counts.

    `fit --alpha cv` chooses the penalty by cross-validation; `report` tells how well a model fits.
    """


@grm.command(examples=(_WRITE_COUNTS, _FIT))
@click.argument("counts", type=FILE)
@click.option(
    "--k", type=COUNT, default=2, show_default=True, help="Largest size of an interaction set."
)
@click.option(
    "--alpha", type=Alpha(), default=0.01, show_default=True,
    help="Weight of the l1 penalty; cv or ebic: the best of ten weights by cross-validation or the "
    "extended BIC.",
)  # fmt: skip
@click.option(
    "--base", type=click.Choice(list(BASES)), default="poisson",
    show_default=True, metavar="FAMILY",
    help=f"Family of one column given the others: {', '.join(BASES)}.",
)  # fmt: skip
@click.option(
    "--features", type=COUNT, help="Keep only this many columns, those with the largest totals."
)
@click.option("--variable", help="Name of the array in an .npz or .mat file.")
@click.option(
    "--interactions", type=click.Choice(["strongest", "all"]), default="strongest",
    show_default=True,
    help="strongest: sets of j columns act through x^(1/j) only; all: also through higher roots, "
    "up to x^(1/k).",
)  # fmt: skip
@click.option(
    "--stagewise",
    is_flag=True,
    help="Consider larger sets only over cliques of the smaller sets that were chosen.",
)
@click.option(
    "--symmetrize", type=click.Choice(["joint", "average", "min", "max"]),
    default="joint",
    show_default=True, help="joint: one estimate for each set; others: merge the estimates of its "
    "columns, average as in the paper.",
)  # fmt: skip
@click.option(
    "--calibrate", is_flag=True,
    help="Adjust the intercepts until the means of samples equal the means of the counts.",
)  # fmt: skip
@click.option(
    "--covariates", type=FILE,
    help="Covariates, one row per row of COUNTS; they shift the coefficient of every column.",
)  # fmt: skip
@click.option(
    "--offset", type=FILE,
    help="Table of one column: what is added to the coefficient of every column in each row of "
    "COUNTS; the log of an exposure.",
)  # fmt: skip
@click.option(
    "--weights", type=FILE,
    help="Table of one column: the weight of each row of COUNTS; 2 is as the row twice, 0 as none.",
)  # fmt: skip
@click.option(
    "--tol",
    type=POSITIVE,
    default=1e-4,
    show_default=True,
    help="Stop when the KKT residual is at most this.",
)
@click.option(
    "--threads", type=THREADS, default=-1, show_default=True,
    help="Number of threads; -1 uses all cores.",
)  # fmt: skip
@click.option(
    "--max-gib", type=POSITIVE,
    help="Memory limit, in GiB, for each of the design of all columns, the derivatives of a joint "
    f"fit and the active columns.  [default: {MAX_MEMORY / 2**30:.2f}]",
)  # fmt: skip
@click.option(
    "--checkpoint", type=OUTPUT, help="Store the finished columns in this file, and resume from it."
)
@click.option("--quiet", is_flag=True, help="Show no progress bar.")
@click.option(
    "-o", "--output", type=OUTPUT, required=True, help="Write the model to this .npz file."
)
@layout_options
def fit(
    counts: str,
    k: int,
    alpha: float | Literal["cv", "ebic"],
    base: str,
    features: int | None,
    variable: str | None,
    interactions: Literal["strongest", "all"],
    stagewise: bool,
    symmetrize: Literal["joint", "average", "min", "max"],
    calibrate: bool,
    covariates: str | None,
    offset: str | None,
    weights: str | None,
    tol: float,
    threads: int,
    max_gib: float | None,
    checkpoint: str | None,
    quiet: bool,
    output: str,
    layout: TableLayout,
) -> None:
    """Fit a model to COUNTS, a table whose rows are samples.

    Its name ends in .npz, .npy, .mtx, .csv, .tsv, .mat, or in .csv.gz or .tsv.gz.  For
    cross-validation, use --alpha cv.
    """
    from fstgrad.grm.model import GeneralizedRootModel

    table, rows = read_tables(
        layout, counts, variable, covariates=covariates, offset=offset, weights=weights
    )
    weight, extra = single_column("--weights", rows["weights"]), rows["covariates"]
    matrix, names, kept = _strongest_columns(table, features)
    if k > matrix.shape[1]:
        raise InvalidInputError(
            f"--k is {k}, and {matrix.shape[1]} columns of {counts} are used; give --k "
            f"{matrix.shape[1]} or less, because a set has distinct members"
        )
    if isinstance(alpha, str):
        reject_options(("checkpoint",), f"with --alpha {alpha}, which makes many fits")
    model = GeneralizedRootModel(
        k, base, 0.01 if isinstance(alpha, str) else alpha, interactions=interactions,
        candidate_sets="stagewise" if stagewise else None, symmetrize=symmetrize, tol=tol,
        n_jobs=threads, checkpoint=checkpoint, verbose=not quiet and sys.stderr.isatty(),
        max_memory=MAX_MEMORY if max_gib is None else gib_to_bytes(max_gib),
    )  # fmt: skip
    attributes: dict[str, Any] = {
        "covariates": None if extra is None else extra.values, "feature_names": names,
        "sample_weight": weight, "offset": single_column("--offset", rows["offset"]),
    }  # fmt: skip
    if isinstance(alpha, str):
        chosen = model.select(matrix, criterion=alpha, **attributes)
        echo(str(chosen))
        model = chosen.model
    else:
        model.fit(matrix, **attributes)
    model.covariate_names_ = None if extra is None else extra.names
    model.kept_columns_ = kept
    if calibrate:
        gap = model.calibrate(matrix, sample_weight=weight).gap.max()
        echo(f"calibrated: mean statistics of samples are off by at most {gap:.2g} sd")
    model.save(output)
    sizes = {order: len(model.top_interactions(order, 10**9)) for order in range(2, k + 1)}
    kept_sets = ", ".join(f"{count} of size {size}" for size, count in sizes.items())
    echo(
        f"{matrix.shape[0]} rows, {matrix.shape[1]} columns, {model.n_candidates_:,} candidate "
        f"sets; kept sets: {kept_sets or 'none'}; largest KKT residual {model.kkt_.max():.2g}; "
        f"wrote {output}"
    )
    _report_overdispersion(model, matrix, attributes)


def _report_overdispersion(model: Any, matrix: Any, attributes: dict[str, Any]) -> None:
    """Print to standard error if the counts vary more than the base of a fitted model allows."""
    from fstgrad.grm import report

    if model.base not in report.WIDER:
        return
    offset, covariates = attributes["offset"], attributes["covariates"]
    n, p = matrix.shape
    copies = report.copies_of_rows(attributes["sample_weight"], n)[:: 1 + n * p // ENTRIES]
    shift = model.parameters_.shifts(
        np.zeros(n) if offset is None else offset,
        np.zeros((n, 0)) if covariates is None else covariates,
    )
    x = matrix[copies].toarray()
    found = report.dispersion(model.parameters_, x, shift[copies])
    if excess := report.overdispersion(model.base, found):
        echo(excess, err=True)


@grm.command(examples=(_WRITE_COUNTS, _FIT, "fstgrad grm top model.npz"))
@click.argument("model", type=FILE)
@click.option(
    "--size",
    type=COUNT,
    help="Size of the sets.  [default: all sizes]",
)
@click.option(
    "--top", "count", type=COUNT, default=10, show_default=True, help="Number of sets shown."
)
@click.option(
    "--sign", type=click.Choice(["both", "positive", "negative"]), default="both",
    show_default=True, help="Sign of the coefficients shown.",
)  # fmt: skip
def top(
    model: str,
    size: int | None,
    count: int,
    sign: Literal["both", "positive", "negative"],
) -> None:
    """Print the strongest sets of MODEL as tab-separated lines: size, coefficient, names.

    With covariates, lines of size 1 also have the slopes: what a covariate adds, times its value,
    to the coefficient of a column.
    """
    from fstgrad.grm.model import GeneralizedRootModel

    fitted = GeneralizedRootModel.load(model)
    sizes = range(1, fitted.k + 1) if size is None else [size]
    for order in sizes:
        for interaction in fitted.top_interactions(order, count, sign=sign):
            echo(f"{order}\t{interaction.value:.6g}\t{_joined(interaction.names)}")
        for value, name in _slopes(fitted, count, sign) if order == 1 else ():
            echo(f"{order}\t{value:.6g}\t{_joined([name])}")


def _joined(names: Iterable[str]) -> str:
    """Return names in one field of one line: tabs and ends of lines are escaped."""
    text = " + ".join(names)
    return text if text.isprintable() else re.sub(r"[\t\n\r]", lambda m: repr(m[0])[1:-1], text)


def _slopes(fitted: Any, count: int, sign: str) -> list[tuple[float, str]]:
    """Return the `count` largest slopes of covariates, each with its column and covariate."""
    slopes = fitted.parameters_.slopes
    if not slopes.size:
        return []
    covariates = fitted.covariate_names_ or range(1, slopes.shape[1] + 1)
    names = [f"{name}, slope of {one}" for name in fitted.names_ for one in covariates]
    key = {"both": -abs(slopes), "positive": -slopes, "negative": slopes}[sign].ravel()
    values = slopes.ravel()
    order = [int(i) for i in key.argsort(kind="stable") if key[i] < 0]
    return [(float(values[i]), names[i]) for i in order[:count]]


@grm.command(examples=(_WRITE_COUNTS, _FIT, "fstgrad grm sample model.npz -n 3 --seed 0"))
@click.argument("model", type=FILE)
@draws_option("Number of rows.", 10)
@click.option("--seed", type=SEED, help="Random seed.")
@click.option(
    "--burn-in",
    type=integer_from(0),
    default=200,
    show_default=True,
    help="Sweeps discarded before the first row.",
)
@click.option("--thin", type=COUNT, default=5, show_default=True, help="Sweeps between rows.")
@click.option(
    "--chains", type=COUNT, default=4, show_default=True, help="Number of independent chains."
)
@click.option(
    "--covariates", type=FILE, help="Table with one row: the covariates of the rows to draw."
)
@click.option(
    "-o",
    "--output",
    type=OUTPUT,
    help="Write to this .csv or .npz file.  [default: standard output]",
)
@click.option("--offset", type=Number(), default=0.0, show_default=True, help="Offset of the rows.")
@layout_options
def sample(
    model: str,
    draws: int,
    seed: int | None,
    burn_in: int,
    thin: int,
    chains: int,
    covariates: str | None,
    output: str | None,
    offset: float,
    layout: TableLayout,
) -> None:
    """Draw rows from MODEL by Gibbs sampling; print the largest R-hat to standard error."""
    from fstgrad.grm.model import GeneralizedRootModel

    fitted = GeneralizedRootModel.load(model)
    if fitted.parameters_.covariates and covariates is None:
        raise InvalidInputError(
            f"{model} was fitted with covariates; give --covariates, those of the rows to draw"
        )
    if fitted.uses_offset_ and offset == 0:
        note(f"fstgrad: {model} was fitted with an offset, and these rows have 0; see --offset")
    row = None
    if covariates is not None:
        table = read_tables(layout, covariates)[0]
        rows = columns_in_order(
            covariates, table.values.toarray(), table.names, fitted.covariate_names_
        )
        if len(rows) != 1:
            raise InvalidInputError(f"--covariates has {len(rows)} rows; give a table of one row")
        row = rows[0]
    fitted = fitted.at(row, offset=offset)
    drawn = fitted.gibbs(draws, seed, burn_in=burn_in, thin=thin, chains=chains)
    if output is not None and output.endswith(".npz"):
        from scipy import sparse

        with replacing(output) as stream:
            sparse.save_npz(stream, sparse.csr_matrix(drawn.values))
    else:
        text = io.StringIO(newline="")
        csv.writer(text, lineterminator="\n").writerow(fitted.names_)
        shape = "%d" if resolve(fitted.base).whole_numbers else "%.17g"
        np.savetxt(text, drawn.values, fmt=shape, delimiter=",")
        if output is None:
            echo(text.getvalue(), nl=False)
        else:
            write_text(output, text.getvalue())
    r_hats = drawn.r_hat[~np.isnan(drawn.r_hat)]
    if r_hats.size:
        echo(f"largest R-hat {r_hats.max():.4f}", err=True)


@grm.command(examples=(_WRITE_COUNTS, _FIT, "fstgrad grm score model.npz counts.csv"))
@click.argument("model", type=FILE)
@click.argument("counts", type=FILE)
@click.option("--variable", help="Name of the array in an .npz or .mat file.")
@row_tables
@layout_options
def score(
    model: str,
    counts: str,
    variable: str | None,
    tables: RowTables,
    layout: TableLayout,
) -> None:
    """Print the mean log-probability (nats) of an entry of COUNTS given its row, under MODEL.

    This is log p(x_s | the other columns of the row), averaged over all rows and columns s.
    Columns are those of the fit by name, or by position if COUNTS or the fit had no names.
    """
    fitted, matrix, row_arguments, _ = _model_and_rows(model, counts, variable, tables, layout)
    mean_log_probability = fitted.score(matrix, **row_arguments)
    echo(f"{mean_log_probability:.12g}")


@grm.command(examples=(_WRITE_COUNTS, _FIT, "fstgrad grm report model.npz counts.csv -n 100"))
@click.argument("model", type=FILE)
@click.argument("counts", type=FILE)
@click.option("--variable", help="Name of the array in an .npz or .mat file.")
@draws_option("Number of rows drawn from the model.", 2000)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Random seed.")
@row_tables
@click.option(
    "--bootstrap", type=integer_from(0), default=0, show_default=True,
    help="Number of fits to resampled rows, to measure the stability of the sets; 0 for none.",
)  # fmt: skip
@click.option(
    "--top",
    type=integer_from(0),
    default=10,
    show_default=True,
    help="Number of sets of each size.",
)
@layout_options
def report(
    model: str,
    counts: str,
    variable: str | None,
    draws: int,
    seed: int,
    tables: RowTables,
    bootstrap: int,
    top: int,
    layout: TableLayout,
) -> None:
    """Compare samples of MODEL with COUNTS, and list its strongest sets.

    The comparison covers means, variances, zeros and pairs of columns, beside independent columns,
    and ends with a verdict.  A p-value below 0.05 tells the samples from COUNTS.  The rows of the
    fit favour the model; other rows do not.  The sets are listed with their signs and the rows of
    COUNTS that support them.
    """
    fitted, matrix, row_arguments, row_names = _model_and_rows(
        model, counts, variable, tables, layout
    )
    comparison = fitted.report(
        matrix, samples=draws, rng=seed, bootstrap=bootstrap, top=top, **row_arguments
    )
    if row_names is not None:
        sets = [one._replace(rows=[row_names[i] for i in one.rows]) for one in comparison.sets]
        comparison = dataclasses.replace(comparison, sets=sets)
    echo(str(comparison))


@grm.command(examples=(_WRITE_COUNTS, _FIT, "fstgrad grm stability model.npz counts.csv -n 10"))
@click.argument("model", type=FILE)
@click.argument("counts", type=FILE)
@click.option("--variable", help="Name of the array in an .npz or .mat file.")
@draws_option("Number of random halves of the rows.", 50)
@click.option("--seed", type=SEED, default=0, show_default=True, help="Random seed.")
@row_tables
@layout_options
def stability(
    model: str,
    counts: str,
    variable: str | None,
    draws: int,
    seed: int,
    tables: RowTables,
    layout: TableLayout,
) -> None:
    """Fit the settings of MODEL to random halves of COUNTS; print how often each set is selected.

    Lines of the share of halves, a tab, and the names of the set, the largest share first.
    """
    fitted, matrix, row_arguments, _ = _model_and_rows(model, counts, variable, tables, layout)
    if fitted.parameters_.covariates and row_arguments["covariates"] is None:
        raise InvalidInputError(f"{model} was fitted with covariates; give --covariates")
    shares = fitted.stability(
        matrix, samples=draws, rng=seed, feature_names=fitted.names_, **row_arguments
    )
    for members, share in shares.items():
        echo(f"{share:.3g}\t{_joined(members)}")
    if not shares:
        echo("no set was selected in any half; a smaller alpha in `grm fit` selects more", err=True)


def _model_and_rows(
    model: str, counts: str, variable: str | None, tables: RowTables, layout: TableLayout
) -> tuple[Any, Any, dict[str, Any], list[str] | None]:
    """Return a model, the counts in the order of its columns, arguments of rows, names of rows."""
    from fstgrad.grm.model import GeneralizedRootModel

    fitted = GeneralizedRootModel.load(model)
    paths = dataclasses.asdict(tables)
    table, rows = read_tables(layout, counts, variable, **paths)
    covariates = rows["covariates"]
    if covariates is not None and tables.covariates is not None:
        values: Any = columns_in_order(
            tables.covariates, covariates.values, covariates.names, fitted.covariate_names_
        )
    else:
        values = None
    arguments = {
        "covariates": values,
        "offset": single_column("--offset", rows["offset"]),
        "sample_weight": single_column("--weights", rows["weights"]),
    }
    if fitted.uses_offset_ and arguments["offset"] is None:
        raise InvalidInputError(f"{model} was fitted with an offset; give --offset")
    matrix = columns_in_order(
        counts, table.values, table.names, fitted.names_, fitted.kept_columns_
    )
    if hasattr(fitted, "feature_names_in_"):  # the columns are in their order
        del fitted.feature_names_in_
    return fitted, matrix, arguments, table.rows


def _strongest_columns(
    table: Table, features: int | None
) -> tuple[Any, list[str] | None, BoolArray | None]:
    """Return the `features` columns with the largest totals, in order, their names, and which.

    Without names, those of some columns are x and their places from 0, which a line shows; names
    and which are None for all columns.  Of equal totals the first are kept, which a line says.
    """
    matrix, names = table.values, table.names
    if features is None:
        return matrix, names, None
    columns = matrix.shape[1]
    if not 1 <= features <= columns:
        raise InvalidInputError(f"--features is {features}; the table has {columns} columns")
    if features == columns:
        return matrix, names, None
    totals = np.asarray(matrix.sum(axis=0)).ravel()
    strongest = np.sort(np.argsort(-totals, kind="stable")[:features])
    kept = np.zeros(columns, dtype=bool)
    kept[strongest] = True
    if names is None:
        names = [f"x{i}" for i in range(columns)]
        shown = listed(names[i] for i in strongest)
        echo(f"kept columns, counted from x0: {shown}, of {columns}", err=True)
    _note_ties(totals, kept, names)
    return matrix[:, strongest], [names[i] for i in strongest], kept


def _note_ties(totals: FloatArray, kept: BoolArray, names: list[str]) -> None:
    """Print which columns have, but for rounding, the least total that --features keeps.

    totals, kept : (p,).  Nothing is printed if all of these columns are kept.
    """
    limit = totals[kept].min()
    tied = np.flatnonzero(np.isclose(totals, limit, rtol=1e-12, atol=0.0)).tolist()
    ours = [names[i] for i in tied if kept[i]]
    if len(ours) < len(tied):
        every = int(kept.sum()) + len(tied) - len(ours)
        echo(
            f"fstgrad: {len(tied):,} columns have the total {limit:.12g}, the least that "
            f"--features {int(kept.sum())} keeps: {listed(names[i] for i in tied)}; kept "
            f"{len(ours):,} of them, {listed(ours)}; --features {every} keeps all",
            err=True,
        )
