"""The strongest sets of a model, and its goodness of fit: samples compared with data."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray, IntArray, Seed
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import items
from fstgrad.core.short_repr import short_repr
from fstgrad.grm import sampling
from fstgrad.grm.parameters import ENTRIES, Parameters
from fstgrad.grm.preparation import sample_weights

MOST_ROWS = 500  # rows of data, and of samples, from which discrepancies of pairs are computed
MOST_PAIRS = 200  # pairs of columns in the mean discrepancy
MOST_COLUMNS = 100  # of the test of independence
MOST_ENTRIES = 2**16  # rows times columns of the test of independence
SWEEPS = 100  # of the chain of each row, if rows have different distributions
SUPPORTS = 3  # rows listed for each set
PERMUTATIONS = 999  # of each test
SLOW = 1.05  # R-hat of chains from which the p-value is not trusted
LEVEL = 0.05  # p-values below this one tell samples from data
CLEAR, CLOSE = 2.0, 3.0  # standard errors of a difference that counts, and of a close case
NEAR = 0.02, 0.1  # p-values of samples that another seed may put on the other side of 0.05
LEAST_EXCESS = 0.1  # of a dispersion above 1 that matters
WIDER = {  # the bases that vary more
    "poisson": "negative-binomial or hurdle-negative-binomial",
    "hurdle-poisson": "hurdle-negative-binomial",
    "negative-binomial": "hurdle-negative-binomial",
}


class WeightedSet(NamedTuple):
    """A set of variables, by name and by column, and its coefficient theta_S."""

    names: tuple[str, ...]
    members: tuple[int, ...]
    value: float


class SetReport(NamedTuple):
    """A set of the model and the evidence for it.

    names : the columns of the set.
    value : float, its coefficient theta_S.
    rows : the rows of the data in which the absolute product of these columns is largest: numbers
        from 0 (names in the command line, where the table has them).
    stability : float, the share of fits to resampled rows that select the set with the same sign;
        NaN without such fits.
    """

    names: tuple[str, ...]
    value: float
    rows: Sequence[int] | Sequence[str]
    stability: float

    def __str__(self) -> str:
        """Return one line."""
        stable = "" if np.isnan(self.stability) else f"{self.stability:7.2f}"
        rows = " ".join(str(row) for row in self.rows)
        return f"{self.value:+10.4f} {stable}  {' + '.join(self.names)}  (rows {rows or '-'})"


class PairStatistics(NamedTuple):
    """How far samples are from data, by pairs of columns.

    spearman : float, the mean absolute difference between the rank correlations, over all pairs.
    discrepancy : float, the mean over pairs of columns of the squared maximum mean discrepancy,
        computed from sign(x) log(1 + |x|) over its standard deviation in the data, with a Gaussian
        kernel of width 1; near 0 if the distributions agree.
    p_value : float
        Of a permutation test: of equal distributions (`discrepancy_test`), or, for independent
        columns, of independence (`independence_p_value`); NaN for one column or row.  It takes
        rows for independent, so samples of a slow chain make it too small.
    """

    spearman: float
    discrepancy: float
    p_value: float

    @property
    def is_told_apart(self) -> bool:
        """Whether the test tells the samples from the data."""
        return self.p_value < LEVEL

    def __str__(self) -> str:
        """Return one line."""
        return (
            f"Spearman difference {self.spearman:.4f}, pairwise MMD^2 {self.discrepancy:.5f}, "
            f"p-value {self.p_value:.3f}"
        )


class WithError(NamedTuple):
    """A number and its standard error."""

    value: float
    standard_error: float

    def __str__(self) -> str:
        """Return both."""
        return f"{self.value:.4f} +- {self.standard_error:.4f} (standard error)"


@dataclass(frozen=True, eq=False)
class FitReport:
    """Statistics of data and of samples side by side.

    names : the p columns.
    base : str, the name of the base family.
    data, samples : dict of "mean", "variance" and "zeros" (their share), (p,) float64 each.
    pairs : PairStatistics, of the samples.
    independent : PairStatistics
        Of independent columns: samples of which each entry is a random entry of its column of data.
    gain : WithError
        How much nearer to the rank correlations r of the data those of the model, s, are than those
        of independent columns, 0: the mean of r^2 - (r - s)^2 over all pairs (`rank_gain`).  On the
        rows of the fit, it favours the model; held-out rows do not.
    dispersion : WithError
        The variance of T of a column given the others, divided by that of the model (`dispersion`):
        1 if the base is right; NaN for bases that are not of counts, or without variance.
    r_hat : float, the largest R-hat of the samples; NaN if each draw has the offset and covariates
        of a different row.
    sets : list of SetReport, the strongest sets of each size, the strongest first.
    """

    names: list[str]
    base: str
    data: dict[str, FloatArray]
    samples: dict[str, FloatArray]
    pairs: PairStatistics
    independent: PairStatistics
    gain: WithError
    dispersion: WithError
    r_hat: float
    sets: list[SetReport]

    __repr__ = short_repr

    @property
    def verdict(self) -> str:
        """What the tests say, in words: the model beside independent columns and data; why."""
        if np.isnan(self.pairs.p_value):
            return "a comparison needs two columns, and two rows of data and of samples"
        is_told = self.pairs.is_told_apart
        if not self.independent.is_told_apart:
            said = (
                f"the model {'does not fit' if is_told else 'fits'}; "
                "correlations between columns of the data are not significant"
            )
        else:
            is_clear = abs(self.gain.value) > CLEAR * self.gain.standard_error
            is_better = is_clear and self.gain.value > 0
            better = "better" if is_better else "worse" if is_clear else "not clearly better"
            told = "can" if is_told else "cannot"
            but = "but" if is_better == is_told else "and"
            said = (
                f"the model describes the dependence of columns {better} than independent columns, "
                f"{but} its samples {told} be told from the data"
            )
        return "; ".join([said, *self._causes(is_told)])

    def _causes(self, is_told: bool) -> list[str]:
        """Return what may be behind a verdict, or speak against it, with remedies."""
        causes = []
        share = abs(self.gain.value) / self.gain.standard_error if self.gain.standard_error else 0
        if self.independent.is_told_apart and CLEAR < share < CLOSE:
            causes.append(
                f"this is close ({share:.1f} standard errors), so compare on held-out rows"
            )
        if NEAR[0] < self.pairs.p_value < NEAR[1]:
            causes.append(
                f"p = {self.pairs.p_value:.2g} is near 0.05, so another seed may tell samples and "
                "data apart or not"
            )
        if excess := overdispersion(self.base, self.dispersion):
            causes.append(excess)
        elif is_told and self.base in WIDER:
            causes.append(f"where variances or zeros differ, try the base {WIDER[self.base]}")
        if self.r_hat > SLOW:
            causes.append(
                f"R-hat is above {SLOW:g}: the chains mix slowly and the p-value is too small, so "
                "draw more samples"
            )
        return causes

    def __str__(self) -> str:
        """Return a line for each column, then the statistics of pairs, then the sets."""
        head = f"{'column':20s} {'mean':>10s} {'sampled':>10s} {'variance':>10s} {'sampled':>10s} "
        lines = [head + f"{'zeros':>7s} {'sampled':>7s}"]
        for i, name in enumerate(self.names):
            d, s = self.data, self.samples
            lines.append(
                f"{name[:20]:20s} {d['mean'][i]:10.4g} {s['mean'][i]:10.4g} "
                f"{d['variance'][i]:10.4g} {s['variance'][i]:10.4g} "
                f"{d['zeros'][i]:7.3f} {s['zeros'][i]:7.3f}"
            )
        mixing = "" if np.isnan(self.r_hat) else f", largest R-hat {self.r_hat:.3f}"
        lines.append(f"{self.pairs}{mixing}")
        lines.append(f"independent columns: {self.independent}")
        lines.append(f"squared Spearman difference below that of independent columns: {self.gain}")
        if not np.isnan(self.dispersion.value):
            lines.append(f"dispersion of a column given the others: {self.dispersion}")
        lines.append(f"verdict: {self.verdict}")
        if self.sets:
            stable = "" if np.isnan(self.sets[0].stability) else f"{'stable':>7s}"
            numbered = ", from 0" if all(isinstance(row, int) for row in self.sets[0].rows) else ""
            lines += ["", f"{'theta':>10s} {stable}  set  (rows where it is largest{numbered})"]
            lines += [str(weighted) for weighted in self.sets]
        return "\n".join(lines)


def strongest_sets(
    parameters: Parameters, names: Sequence[str], order: int, top: int, sign: str
) -> list[WeightedSet]:
    """Return up to `top` sets of `order` variables, the strongest coefficients first.

    names : of the columns.  sign : as in `GeneralizedRootModel.top_interactions`.
    """
    if order == 1:
        sets, values = np.arange(parameters.features)[:, None], parameters.intercepts[:, 0]
        key, is_left_out = (values if sign == "negative" else -values), np.zeros(values.shape)
    else:
        of_order = [i for i in parameters.interactions if i.term.size == order]
        none = np.zeros((0, order), dtype=np.int64)
        sets = np.concatenate([none, *(i.sets for i in of_order)])
        values = np.concatenate([np.zeros(0), *(i.values for i in of_order)])
        key = {"both": -np.abs(values), "positive": -values, "negative": values}[sign]
        is_left_out = {"both": values == 0, "positive": values <= 0, "negative": values >= 0}[sign]
    ranked = [i for i in np.argsort(key, kind="stable").tolist() if not is_left_out[i]]
    return [
        WeightedSet(
            tuple(names[s] for s in sets[i].tolist()), tuple(sets[i].tolist()), float(values[i])
        )
        for i in ranked[:top]
    ]


def graph_of_sets(parameters: Parameters, names: Sequence[str], top: int | None) -> Any:
    """Return the networkx graph of `GeneralizedRootModel.to_networkx`."""
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(names)
    most = top or max(1, parameters.flat.values.size)
    for order in range(2, parameters.k + 1):
        for strong in strongest_sets(parameters, names, order, most, "both"):
            for a, b in combinations(strong.names, 2):
                if not graph.has_edge(a, b):
                    graph.add_edge(a, b, weight=0.0, sets=[])
                if order == 2:
                    graph[a][b]["weight"] += strong.value
                else:
                    graph[a][b]["sets"].append((strong.names, strong.value))
    return graph


def fit_report(
    model: Any,
    data: sparse.csr_matrix,
    shift: FloatArray | None,
    row_arguments: dict[str, Any],
    copies: IntArray,
    sizes: tuple[int, int, int],
    rng: Seed,
) -> FitReport:
    """Return a comparison of Gibbs draws of a fitted model with data (n, p), and its sets.

    shift : (n, p), added to eta_1, if the rows have offsets or covariates.
    row_arguments : the offsets and covariates of the rows, for fits to resampled rows.
    copies : the rows that count, in which a row is repeated by its weight.
    sizes : samples, bootstrap and top, as rng in `GeneralizedRootModel.report`.
    """
    generator = checks.generator(rng)
    samples = checks.positive_integer("samples", sizes[0])
    bootstrap = checks.positive_integer("bootstrap", sizes[1], minimum=0)
    top = checks.positive_integer("top", sizes[2], minimum=0)
    x, worst, each = data.toarray(), np.nan, 1
    counted = x * np.isin(np.arange(len(x)), copies)[:, None]
    x = x[copies]
    if shift is None:
        chains = min(100, samples)
        draws, each = model.gibbs(samples, generator, chains=chains), -(-samples // chains)
        values, defined = draws.values, draws.r_hat[~np.isnan(draws.r_hat)]
        worst = float(defined.max()) if defined.size else np.nan
    else:
        chosen = shift[copies[generator.integers(len(copies), size=samples)]]
        values = sampling.one_each(model.parameters_, chosen, SWEEPS, generator)
    sets = [
        SetReport(
            strong.names,
            strong.value,
            supporting_rows(counted, list(strong.members), SUPPORTS),
            np.nan,
        )
        for order in range(2, model.k + 1)
        for strong in (model.top_interactions(order, top) if top else [])
    ]
    if bootstrap and sets:
        sets = _stable(model, data, row_arguments, copies, sets, bootstrap, generator)
    pairs = PairStatistics(spearman_difference(x, values), *discrepancy_test(x, values, generator))
    every = model.parameters_
    return FitReport(
        list(model.names_), every.families[0].name, _columns(x), _columns(values), pairs,
        _independent_columns(x, samples, generator), rank_gain(x, values, each),
        dispersion(every, x, None if shift is None else shift[copies]), worst, sets,
    )  # fmt: skip


def _independent_columns(x: FloatArray, samples: int, rng: np.random.Generator) -> PairStatistics:
    """Return the statistics of independent columns with the distributions of the columns of x."""
    drawn = np.take_along_axis(x, rng.integers(len(x), size=(samples, x.shape[1])), axis=0)
    return PairStatistics(
        spearman_difference(x, drawn), pair_discrepancy(x, drawn, rng), independence_p_value(x, rng)
    )


def copies_of_rows(sample_weight: npt.ArrayLike | None, rows: int) -> IntArray:
    """Return the numbers of the rows, each repeated by its weight.

    Weights that are no integers, or sum to more than 2^20, give as many rows as there are, at equal
    steps of the cumulated weights, so that the number of copies is within 1 of the share.
    """
    every = np.arange(rows)
    if sample_weight is None:
        return every
    relative = sample_weights(sample_weight, rows)
    given = np.broadcast_to(np.asarray(sample_weight, dtype=np.float64), rows)
    if (given % 1 == 0).all() and given.sum() <= 2**20:
        return np.repeat(every, given.astype(np.int64))
    edges = np.cumsum(relative)
    places: IntArray = np.searchsorted(edges, (every + 0.5) / rows * edges[-1])
    return np.minimum(places, rows - 1)


def _stable(
    model: Any,
    data: sparse.csr_matrix,
    row_arguments: dict[str, Any],
    copies: IntArray,
    sets: list[SetReport],
    fits: int,
    rng: np.random.Generator,
) -> list[SetReport]:
    """Return the sets with `stability`, from fits to `fits` bootstrap samples of the rows."""
    from sklearn.base import clone

    counts = np.zeros(len(sets))
    for _ in range(fits):
        rows = copies[rng.integers(len(copies), size=len(copies))]
        resampled = {
            name: None if a is None else np.asarray(a)[rows] for name, a in row_arguments.items()
        }
        refitted = clone(model).set_params(warm_start=False, checkpoint=None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            refitted.fit(data[rows], feature_names=model.names_, **resampled)
        signs = {
            weighted.names: np.sign(weighted.value)
            for order in range(2, model.k + 1)
            for weighted in refitted.top_interactions(
                order, max(1, refitted.parameters_.flat.values.size)
            )
        }
        counts += [signs.get(weighted.names, 0.0) == np.sign(weighted.value) for weighted in sets]
    return [
        weighted._replace(stability=float(c / fits))
        for weighted, c in zip(sets, counts, strict=True)
    ]


def spearman_difference(x: FloatArray, y: FloatArray) -> float:
    """Return the mean absolute difference of the rank correlations, over all pairs of columns.

    x : (n, p).  y : (m, p).  The correlation with a constant column counts as 0.
    """
    upper = np.triu_indices(x.shape[1], 1)
    if not upper[0].size:
        return 0.0
    one, other = ((z.T @ z / len(z))[upper] for z in map(_standard_ranks, (x, y)))
    return float(np.abs(one - other).mean())


def rank_gain(x: FloatArray, y: FloatArray, each: int) -> WithError:
    """Return the mean of r^2 - (r - s)^2 over pairs of columns, with a paired standard error.

    r and s are the rank correlations of data x (n, p) and of draws y (m, p) of a model; those of
    independent columns are 0.  The difference is 2 r s - s^2, a mean over rows of data, so that the
    noise of r^2 cancels; s^2 is the product of s of two halves of the chains, without bias.  The
    errors of r and s are those of means over rows and over chains with their ranks held fixed.

    each : the number of draws of a chain, next to each other in y.
    """
    chains = -(-len(y) // each)
    upper = np.triu_indices(x.shape[1], 1)
    if not upper[0].size or len(x) < 2 or chains < 2:
        return WithError(0.0, np.nan)
    middle = chains // 2 * each
    data, drawn = _standard_ranks(x), _standard_ranks(y)
    r, s = (ranks.T @ ranks / len(ranks) for ranks in (data, drawn))
    one, other = (z.T @ z / len(z) for z in map(_standard_ranks, (y[:middle], y[middle:])))
    value = (2 * r * s - one * other)[upper].mean()
    of_rows = ((data @ np.triu(s, 1)) * data).sum(axis=1)
    of_draws = ((drawn @ np.triu(r - s, 1)) * drawn).sum(axis=1)
    of_chains = np.add.reduceat(of_draws, np.arange(0, len(y), each)) / each
    error = np.hypot(*(part.std(ddof=1) / len(part) ** 0.5 for part in (of_rows, of_chains)))
    return WithError(float(value), float(2 * error / len(upper[0])))


def dispersion(parameters: Parameters, x: FloatArray, shift: FloatArray | None) -> WithError:
    """Return the mean over columns of sum_i (T - E[T])^2 / sum_i Var[T], given the other columns.

    1 if the conditional distributions of the model are right, above 1 if the base is too narrow;
    columns that do not vary are left out.  NaN for bases that are not of counts, and where the
    variance of the model is 0 or not finite.  The standard error is that of a mean over rows.

    x : (n, p).  shift : (n, p), added to eta_1, or None.
    """
    varying = np.flatnonzero((x != x[:1]).any(axis=0))
    if not parameters.family.whole_numbers or not varying.size:
        return WithError(np.nan, np.nan)
    size = max(1, ENTRIES // parameters.intercepts.size)
    parts = [
        parameters.squared_residuals(
            x[i : i + size], None if shift is None else shift[i : i + size]
        )
        for i in range(0, len(x), size)
    ]
    squared, variance = (np.concatenate(part)[:, varying] for part in zip(*parts, strict=True))
    excess = ((squared - variance) / variance.mean(axis=0)).mean(axis=1)
    return WithError(1 + float(excess.mean()), float(excess.std(ddof=1) / len(x) ** 0.5))


def overdispersion(base: str, found: WithError) -> str:
    """Return a clause that says that data vary more than a base allows, with the remedy; or ""."""
    excess = found.value - 1
    if base not in WIDER or not excess > max(CLEAR * found.standard_error, LEAST_EXCESS):
        return ""
    return (
        f"given the others, columns vary {found.value:.3g} times as much as the base {base} allows "
        f"(standard error {found.standard_error:.2g}), and sets may only make up for that: fit "
        f"with the base {WIDER[base]}"
    )


def independence_p_value(x: FloatArray, rng: np.random.Generator) -> float:
    """Return the p-value of independent columns of x (n, p), from their rank correlations.

    The columns are put in random order, PERMUTATIONS times.  Two statistics, the sum of the squared
    correlations (many weak ones) and the largest (a single strong one), are combined by
    `_combined_p_value`.  At most MOST_COLUMNS random columns and MOST_ENTRIES entries are used.
    """
    if min(x.shape) < 2:
        return np.nan
    columns = rng.permutation(x.shape[1])[:MOST_COLUMNS]
    ranks = _standard_ranks(x[rng.permutation(len(x))[: MOST_ENTRIES // columns.size]][:, columns])
    upper = np.triu_indices(columns.size, 1)
    statistics = np.zeros((2, PERMUTATIONS + 1))
    for i in range(PERMUTATIONS + 1):
        squares = (ranks.T @ ranks / len(ranks))[upper] ** 2
        statistics[:, i] = squares.mean(), squares.max()
        ranks = rng.permuted(ranks, axis=0)
    return _combined_p_value(statistics)


def pair_discrepancy(x: FloatArray, y: FloatArray, rng: np.random.Generator) -> float:
    """Return the mean unbiased squared maximum mean discrepancy over pairs of columns.

    x : (n, p), data.  y : (m, p), samples.  At most MOST_ROWS random rows of each and MOST_PAIRS
    random pairs are used.
    """
    if x.shape[1] < 2 or min(len(x), len(y)) < 2:
        return 0.0
    left, right = _random_rows(x, rng), _random_rows(y, rng)
    is_data = np.arange(len(left) + len(right))[:, None] < len(left)
    return float(_discrepancies(_gaussian_kernel(left, right, x, rng), is_data)[0])


def discrepancy_test(x: FloatArray, y: FloatArray, rng: np.random.Generator) -> tuple[float, float]:
    """Return `pair_discrepancy`, and the p-value of equal distributions of rows.

    The rows used of x and y are divided at random, PERMUTATIONS times.  Two statistics, the
    discrepancy and the squared differences of rank correlations, which the discrepancy hardly
    sees, are combined by `_combined_p_value`.

    Source: Gretton et al., "A kernel two-sample test", JMLR 13 (2012).
    """
    if x.shape[1] < 2 or min(len(x), len(y)) < 2:
        return 0.0, np.nan
    left, right = _random_rows(x, rng), _random_rows(y, rng)
    kernels = _gaussian_kernel(left, right, x, rng), _correlation_kernel(left, right)
    is_data = np.arange(len(left) + len(right))[:, None] < len(left)
    labels = np.repeat(is_data, PERMUTATIONS + 1, axis=1)
    labels[:, 1:] = rng.permuted(labels[:, 1:], axis=0)
    values = np.array([_discrepancies(kernel, labels) for kernel in kernels])
    return float(values[0, 0]), _combined_p_value(values)


def _combined_p_value(statistics: FloatArray) -> float:
    """Return one p-value of several statistics (S, B) of the data (first) and B - 1 permutations.

    Each statistic is replaced by its p-value among the B; the share of columns whose smallest
    p-value is at most that of the data is again a p-value.  Source: Westfall and Young (1993).
    """
    from scipy.stats import rankdata

    at_least = rankdata(-statistics.round(12), method="max", axis=1)
    smallest = at_least.min(axis=0)
    return float((smallest <= smallest[0]).mean())


def _standard_ranks(x: FloatArray) -> FloatArray:
    """Return the ranks in each column of x (n, p), with mean 0 and variance 1; 0 if constant."""
    from scipy.stats import rankdata

    ranks = rankdata(x, axis=0)
    ranks -= ranks.mean(axis=0)
    deviation = ranks.std(axis=0)
    result: FloatArray = ranks / np.where(deviation > 0, deviation, 1.0)
    return result


def _random_rows(x: FloatArray, rng: np.random.Generator) -> FloatArray:
    return x[rng.permutation(len(x))[:MOST_ROWS]]


def _gaussian_kernel(
    left: FloatArray, right: FloatArray, x: FloatArray, rng: np.random.Generator
) -> FloatArray:
    """Return the kernel of rows of data x and of samples (N, N), a mean over pairs of columns.

    The diagonal is 0.
    """
    first, second = np.triu_indices(x.shape[1], 1)
    signed_logs = (np.log1p(np.abs(part)) * np.sign(part) for part in (x, left, right))
    scale, *parts = signed_logs
    rows = np.concatenate(parts) / np.maximum(scale.std(axis=0), 1e-3)
    chosen = rng.permutation(first.size)[:MOST_PAIRS]
    kernel = np.zeros((len(rows), len(rows)))
    for a, b in zip(first[chosen], second[chosen], strict=True):
        pair = rows[:, [a, b]]
        kernel += np.exp(-0.5 * ((pair[:, None] - pair[None]) ** 2).sum(axis=-1))
    kernel /= len(chosen)
    np.fill_diagonal(kernel, 0.0)
    return kernel


def _correlation_kernel(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return the inner products (N, N) of the products of ranks of all pairs of columns.

    Its squared discrepancy is the mean squared difference of rank correlations, without bias.  The
    ranks are those among the rows of both; the diagonal is 0.
    """
    ranks = _standard_ranks(np.concatenate([left, right]))
    columns = ranks.shape[1]
    kernel = ((ranks @ ranks.T) ** 2 - ranks**2 @ (ranks**2).T) / (columns * (columns - 1))
    np.fill_diagonal(kernel, 0.0)
    return np.asarray(kernel)


def _discrepancies(kernel: FloatArray, labels: npt.NDArray[np.bool_]) -> FloatArray:
    """Return the unbiased squared discrepancy (B,) of the rows with and without a label (N, B)."""
    inside = labels.astype(np.float64)
    to_inside = kernel @ inside
    within = (inside * to_inside).sum(axis=0)
    across = to_inside.sum(axis=0) - within
    rest = kernel.sum() - within - 2 * across
    n = inside.sum(axis=0)
    m = len(kernel) - n
    result: FloatArray = within / (n * (n - 1)) + rest / (m * (m - 1)) - 2 * across / (n * m)
    return result


def columns_of(names: Sequence[str], model_names: Sequence[str]) -> list[int]:
    """Return the numbers of the columns `names` of a model; raise InvalidInputError for others."""
    columns = []
    for name in items("names", names):
        checks.instance("one of names", name, str, "a str")
        if name not in model_names:
            raise InvalidInputError(f"names has {name!r}, which is not a column of the model")
        columns.append(model_names.index(name))
    return columns


def supporting_rows(x: FloatArray, columns: Sequence[int], top: int) -> list[int]:
    """Return up to `top` rows of x (n, p) with the largest |product| of some columns.

    The largest first; rows with product 0 are left out.
    """
    product = np.abs(x[:, list(columns)]).prod(axis=1)
    order = np.argsort(-product, kind="stable")[:top]
    return [int(row) for row in order if product[row] > 0]


def _columns(x: FloatArray) -> dict[str, FloatArray]:
    return {"mean": x.mean(axis=0), "variance": x.var(axis=0), "zeros": (x == 0).mean(axis=0)}
