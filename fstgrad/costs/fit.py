"""Fit the costs of a transducer to pairs of strings by maximum likelihood."""

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import (
    FloatArray,
    Seed,
    generator,
    instance,
    one_of,
    positive_integer,
    positive_number,
)
from fstgrad.core.errors import InvalidInputError
from fstgrad.costs.em import Estimator, Weights
from fstgrad.costs.learned_costs import CostFit
from fstgrad.costs.pairs import Pairs, check_aligned
from fstgrad.costs.parameter_tying import Given, ParameterTying, Tie
from fstgrad.costs.transducer import PairTransducer, TransducerSource, pair_transducer

Prior = Literal["uniform", "transducer"]


class Schedule(NamedTuple):
    """When to stop, and how often to start.

    Parameters
    ----------
    max_iter : int
        Largest number of EM steps per start.
    tolerance : float
        End a start if the log-posterior rises by no more than this, in nats per pair.
    patience : int
        With held-out pairs, end a start after this many steps without a gain on them.
    restarts : int
        Number of starts: the first from the transducer's own costs, the others with noise added.
    progress : callable, optional
        Called after each step with (start, iteration, log-likelihood in nats per pair).
    """

    max_iter: int = 100
    tolerance: float = 1e-6
    patience: int = 3
    restarts: int = 1
    progress: Callable[[int, int, float], object] | None = None


def fit_costs(
    source: TransducerSource,
    pairs: Iterable[Sequence[Any]],
    alphabet: Alphabet | None = None,
    *,
    given: Given = "nothing",
    tie: Tie = "pair",
    smoothing: float = 0.0,
    prior: Prior = "uniform",
    held_out: float | Iterable[Sequence[Any]] = 0.0,
    schedule: Schedule = Schedule(),  # noqa: B008
    rng: Seed = 0,
) -> CostFit:
    """Learn the costs of a transducer from pairs of strings by expectation-maximization (EM).

    The transducer becomes a distribution over pairs; its costs become -log of the probabilities of
    all arcs that leave a state (given="nothing"), or of those that match the given side.  EM
    maximizes the sum over the pairs of mass times log p, where p sums over all alignments, plus the
    log-prior; no step lowers it.

    Parameters
    ----------
    source : pynini.Fst, TransducerLoss or grammar
        Reads the hypothesis and writes the target.  The first start uses its costs.
    pairs : iterable of (hypothesis, target) or (hypothesis, target, mass)
        Mass > 0 is the number of times that the pair was seen; 1 if left out.
    alphabet : Alphabet, optional
        The alphabet for a grammar; the grammar's own if left out.
    given : {"nothing", "hypothesis", "target"}
        Model p(hypothesis, target), p(target | hypothesis), or p(hypothesis | target).
    tie : {"pair", "arc", "cost", "rule"} or callable
        Which arcs share a weight: those that read and write the same symbols by the same rule, if
        any; none; those of one kind (copy, substitute, insert, delete) and one cost; those of one
        rule of a grammar of rules; or those with an equal f(read, written, cost), where "" is no
        symbol.
    smoothing : float
        Counts >= 0 added to each class of each group: a Dirichlet prior with parameters 1 +
        smoothing.
    prior : {"uniform", "transducer"}
        Whether the counts of a group, in total `smoothing` times the number of its classes, are
        equal, or proportional to the transducer's own probabilities.
    held_out : float or pairs
        A share in [0, 1) of the pairs, drawn by `rng`, or other pairs.  If there are any, the step
        at which they are likeliest is kept.
    schedule : Schedule
        When to stop, and the number of starts.  The start with the greatest log-likelihood of the
        held-out pairs is kept; without such pairs, the one with the greatest log-posterior.
    rng : Generator, int or None
        Draws the held-out pairs and the noise of restarts.

    Returns
    -------
    CostFit
        The costs as a transducer, a loss and a table; the likelihood of each step.

    Raises
    ------
    InfeasibleError
        The transducer has no alignment of a pair; the message names the pair.
    InvalidInputError, AlphabetError
        An argument is not as above, or a symbol is not in the alphabet.
    NotSupportedError, FstError, MemoryLimitError
        See `pair_transducer` and `PairTransducer.log_sums`.

    Notes
    -----
    An iteration costs O(sum |x| |y| matching arcs).  Sources: Ristad and Yianilos, "Learning string
    edit distance", IEEE PAMI 20 (1998); Dempster, Laird and Rubin (1977).

    Examples
    --------
    >>> import fstgrad as fg
    >>> pairs = [("ab", "ab"), ("ab", "bb"), ("bab", "bbb"), ("bb", "bb")]
    >>> fit = fg.fit_costs(fg.EditDistance(fg.Alphabet("ab")), pairs, smoothing=0.1)
    >>> fit.loss()("a", "b") < fit.loss()("b", "a")
    True
    """
    one_of("prior", prior, ("uniform", "transducer"))
    smoothing = positive_number("smoothing", smoothing, allow_zero=True)
    instance("schedule", schedule, Schedule, "a Schedule")
    schedule = schedule._replace(
        restarts=positive_integer("restarts", schedule.restarts),
        max_iter=positive_integer("max_iter", schedule.max_iter),
    )
    random = generator(rng)
    transducer = pair_transducer(source, alphabet)
    ties = ParameterTying.of(transducer, tie, given)
    estimator = _estimator(transducer, ties, smoothing, prior)
    data = Pairs.encode(transducer.alphabet, pairs, name="pairs")
    _check_aligned(estimator, data)
    data, validation = _held_out_split(transducer, data, held_out, random)
    starts = [
        _run_start(estimator, data, validation, schedule, start, random)
        for start in range(schedule.restarts)
    ]
    best = max(starts, key=lambda start: start.quality)
    return CostFit(
        pair_transducer=transducer,
        ties=ties,
        cost=-estimator.log_weights(best.weights),
        initial_cost=-estimator.log_weights(estimator.initial()),
        counts=best.counts,
        prior=estimator.pseudo,
        pairs=data,
        theta=best.weights.theta,
        log_likelihood=tuple(best.likelihood),
        held_out_log_likelihood=tuple(best.held_out),
        kept=best.kept,
        starts=tuple(start.quality for start in starts),
    )


class _StartResult(NamedTuple):
    """One start of EM: its best weights, the counts under them, the values of all its steps."""

    weights: Weights
    counts: FloatArray
    likelihood: list[float]
    held_out: list[float]
    quality: float
    kept: int


def _run_start(
    estimator: Estimator,
    data: Pairs,
    validation: Pairs | None,
    schedule: Schedule,
    start: int,
    random: np.random.Generator,
) -> _StartResult:
    """Run EM from one start; return its best step."""
    weights = estimator.initial()
    if start:
        weights = estimator.perturbed(weights, random)
    likelihood: list[float] = []
    held_out: list[float] = []
    best, last, waited = None, -math.inf, 0
    for iteration in range(schedule.max_iter + 1):
        values, counts, after = estimator.step(weights, data)
        likelihood.append(float(data.mass @ values))
        posterior = likelihood[-1] + estimator.log_prior(weights)
        quality = posterior
        if validation is not None:
            quality = float(
                validation.mass
                @ estimator.pair_transducer.log_sums(validation, estimator.log_weights(weights))
            )
            held_out.append(quality)
        if schedule.progress is not None:
            schedule.progress(start, iteration, likelihood[-1] / float(data.mass.sum()))
        is_better = best is None or quality > best.quality
        waited = 0 if is_better else waited + 1
        if is_better:
            best = _StartResult(weights, counts, likelihood, held_out, quality, iteration)
        is_flat = posterior - last <= schedule.tolerance * float(data.mass.sum())
        if is_flat or (validation is not None and waited >= schedule.patience):
            break
        weights, last = after, posterior
    if best is None:
        best = _StartResult(weights, counts, likelihood, held_out, quality, iteration)
    return best


def _estimator(
    transducer: PairTransducer, ties: ParameterTying, smoothing: float, prior: Prior
) -> Estimator:
    """Return the estimator with its prior."""
    pseudo = np.full(len(ties.cell_class), smoothing)
    estimator = Estimator(transducer, ties, pseudo, smoothing)
    if prior == "uniform" or not smoothing:
        return estimator
    share = np.exp(ties.log_cells(estimator.initial().theta))
    in_group = np.bincount(ties.cell_group)[ties.cell_group]
    counts = np.asarray(smoothing * in_group * share, dtype=np.float64)
    return Estimator(transducer, ties, counts, smoothing)


def _check_aligned(estimator: Estimator, data: Pairs) -> None:
    """Raise InfeasibleError if pairs have no alignment."""
    values = estimator.pair_transducer.log_sums(data, estimator.log_weights(estimator.initial()))
    alphabet = estimator.pair_transducer.alphabet
    check_aligned("pairs", data, np.arange(len(data)), np.isneginf(values), alphabet)


def _held_out_split(
    transducer: PairTransducer,
    data: Pairs,
    held_out: float | Iterable[Sequence[Any]],
    random: np.random.Generator,
) -> tuple[Pairs, Pairs | None]:
    """Return the pairs to learn from, and those held out, None if there are none."""
    if not isinstance(held_out, int | float):
        return data, Pairs.encode(transducer.alphabet, held_out, name="held_out")
    if isinstance(held_out, bool) or not 0 <= held_out < 1:
        raise InvalidInputError(f"held_out is {held_out!r}; give a share in [0, 1), or pairs")
    if held_out == 0:
        return data, None
    order = random.permutation(len(data))
    count = math.ceil(held_out * len(data))
    if count >= len(data):
        raise InvalidInputError(
            f"held_out is {held_out!r} of {len(data)} pairs, which leaves no pair to learn from; "
            "give more pairs"
        )
    return data.take(np.sort(order[count:])), data.take(np.sort(order[:count]))
