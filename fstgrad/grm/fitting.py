"""The fit of a model: node regressions in threads, merged or tied, if wanted stage by stage.

The kernels release the interpreter lock, so that threads can share the design without copies.
"""

import importlib.util
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, as_completed
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.threads import worker_threads
from fstgrad.grm import normalization
from fstgrad.grm.active_set import Intercepts
from fstgrad.grm.blocks import Term
from fstgrad.grm.checkpoint import Checkpoint, checkpoint_of
from fstgrad.grm.design import Design
from fstgrad.grm.parameters import Interactions, Parameters
from fstgrad.grm.problem import FitSettings, Problem
from fstgrad.grm.regression import NodeFit

if TYPE_CHECKING:
    from rich.console import Console

CHECKPOINT_SECONDS = 20.0
ALPHA_ERROR = 1e-9  # relative error of alpha_max
LEAST_SHARE = 1e-12  # of the largest gradient, below which a gradient counts as 0
PRECISE = 1e-10  # accuracy of the gradients of intercepts for alpha_max
ROUGH = 0.05  # times alpha: the tolerance of node regressions that only start a joint fit
Progress = Callable[[int, NodeFit], None]


class Solution(NamedTuple):
    """The result of a fit.

    node_fits : the p regressions before they are combined.
    kkt : (p,) float64, the largest violation of the optimality conditions of each node.
    scans : the largest number of scans that a node needed.
    candidates : the number of candidate sets of two and more variables.
    """

    parameters: Parameters
    node_fits: list[NodeFit]
    kkt: FloatArray
    scans: int
    candidates: int


def fit(
    problem: Problem,
    settings: FitSettings,
    start: tuple[list[NodeFit], Parameters] | None = None,
) -> Solution:
    """Return the fit of a model.

    start : the node fits and the parameters of an earlier fit; not used if it does not match.
    """
    k, is_joint = problem.k, settings.is_joint
    node_fits, last = start if start and _matches(problem, *start) else (None, None)
    candidates = settings.candidates
    if settings.stagewise:
        candidates, node_fits = _stagewise(problem, settings, node_fits)
    design = problem.design(candidates)
    if node_fits is None or not is_joint or settings.stagewise:
        first = problem.pairs_of(design) if is_joint else design
        node_fits, last = _fit_stage(problem, first, settings, node_fits, k), None
    return _combined(problem, settings, design, node_fits, last)


def _stagewise(
    problem: Problem, settings: FitSettings, node_fits: list[NodeFit] | None
) -> tuple[dict[int, IntArray], list[NodeFit] | None]:
    """Return the candidates of the last stage, and the node fits of the stage before.

    node_fits : the start of the first stage, if there is one.
    """
    candidates: dict[int, IntArray] = {}
    for size in range(2, problem.k):
        design = problem.design({**candidates, **problem.up_to(size)})
        node_fits = _fit_stage(problem, design, settings, node_fits, size)
        selected = _selected(problem, node_fits, design, size)
        candidates[size + 1] = cliques(selected, problem.x.shape[1])
    return candidates, node_fits


def _matches(problem: Problem, fits: list[NodeFit], parameters: Parameters) -> bool:
    """Return whether an earlier fit can be the start of this one."""
    return (
        len(fits) == problem.x.shape[1]
        and parameters.k == problem.k
        and isinstance(parameters.family, type(problem.families[0]))
        and fits[0].intercepts.size == problem.intercepts.width
    )


def _fit_stage(
    problem: Problem,
    design: Design,
    settings: FitSettings,
    starts: list[NodeFit] | None,
    stage: int,
) -> list[NodeFit]:
    """Return the node regressions, with a rough tolerance if they only start a joint fit."""
    checkpoint = checkpoint_of(problem, settings.checkpoint, stage, settings.arguments)
    if settings.is_joint and stage == problem.k:
        settings = replace(settings, tol=max(settings.tol, ROUGH * settings.alpha))
    with node_progress(settings.progress_names) as progress:
        return solve_nodes(problem, design, settings, starts, checkpoint, progress)


def _selected(problem: Problem, fits: list[NodeFit], design: Design, size: int) -> IntArray:
    """Return the sets (m, size) that at least one node selected."""
    merged = symmetrize(fits, design, problem.without_sets(), problem.intercepts, "max")
    sets = [i.sets for i in merged.interactions if i.term.size == size]
    return np.unique(np.concatenate(sets), axis=0)


def _combined(
    problem: Problem,
    settings: FitSettings,
    design: Design,
    fits: list[NodeFit],
    last: Parameters | None,
) -> Solution:
    """Return one model from the node fits: the joint fit, or merged estimates.

    last : the parameters of an earlier joint fit, which are a better start than the node fits.
    """
    rule = "average" if settings.symmetrize == "joint" else settings.symmetrize
    merged = symmetrize(fits, design, problem.without_sets(), problem.intercepts, rule)
    kkt = np.array([fit.kkt for fit in fits])
    scans = max(fit.scans for fit in fits)
    if settings.is_joint:
        start = replace(last, families=problem.families) if last else merged
        joint = problem.fit_joint(design, settings, start)
        merged, kkt = joint.parameters, joint.kkt
        scans = joint.scans + (0 if last else scans)
    elif merged.flat.values.size:
        merged = problem.refit_intercepts(merged, settings)
    return Solution(merged, fits, kkt, scans, design.candidate_count())


def warn_of_defects(solution: Solution, tol: float) -> None:
    """Warn if a fit stopped early, or if its model has no normalizer."""
    _warn_of_violation(solution.kkt, tol)
    answer = normalization.is_normalizable(solution.parameters)
    if answer.value is False:
        warnings.warn(
            f"the fitted model has no normalizer ({answer.certificate}): it has node "
            "conditionals, but no joint distribution to sample from; raise alpha, give "
            'symmetrize="min", or use a base of counts',
            stacklevel=4,
        )


def _warn_of_violation(kkt: FloatArray, tol: float) -> None:
    """Warn if a node stopped early, given the largest violation of each node (p,)."""
    if kkt.max() > tol:
        worst = int(np.argmax(kkt))
        warnings.warn(
            f"node {worst} stopped at a violation of {kkt[worst]:.2g} > tol={tol}; "
            "raise max_iter or tol",
            stacklevel=5,
        )


def solve_nodes(
    problem: Problem,
    design: Design,
    settings: FitSettings,
    starts: list[NodeFit] | None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> list[NodeFit]:
    """Return the solutions of all node regressions, computed in threads.

    Nodes in the checkpoint are not solved again.  The checkpoint is saved about every 20 seconds
    and at the end, also after an error or an interruption.  progress(node, fit) is called after
    each node.
    """
    features = problem.x.shape[1]
    fits = checkpoint.load() if checkpoint else {}
    running: dict[Future[NodeFit], int] = {}
    saved = time.monotonic()
    try:
        with worker_threads(settings.threads) as pool:
            for node in range(features):
                if node not in fits:
                    start = starts[node] if starts else None
                    running[pool.submit(problem.fit_node, node, design, settings, start)] = node
            for future in as_completed(running):
                node = running[future]
                fits[node] = future.result()
                if progress:
                    progress(node, fits[node])
                if checkpoint and time.monotonic() - saved > CHECKPOINT_SECONDS:
                    checkpoint.save(fits)
                    saved = time.monotonic()
    finally:
        if checkpoint:  # after an error, other nodes may be finished that the loop has not seen
            done = (future for future in running if future.done() and not future.cancelled())
            fits.update({running[f]: f.result() for f in done if f.exception() is None})
            checkpoint.save(fits)
    return [fits[node] for node in range(features)]


def largest_useful_alpha(problem: Problem, settings: FitSettings) -> float:
    """Return the smallest alpha at which the model has no set, times 1 + 1e-9.

    It is the alpha that equals the largest gradient of a candidate, divided by its scale, in the
    model without sets.  Alpha itself changes that model if intercepts are penalised, and the
    candidates of a joint fit if they are chosen stagewise; it is then searched for.
    """
    settings = replace(settings, checkpoint=None, progress_names=None)
    is_stagewise = settings.stagewise and problem.k > 2
    candidates = problem.up_to(2) if is_stagewise else settings.candidates
    design = problem.design(candidates)
    alone = _without_sets(problem, settings, design, 1e300)
    high = max(alone.columns, alone.intercepts)  # from this alpha on, a node selects nothing
    choices = is_stagewise and settings.is_joint
    top = alone.sets
    if top < (1 - ALPHA_ERROR) * high and (choices or alone.intercepts > top):

        def excess(alpha: float) -> float:
            nonlocal alone
            chosen = design
            if choices:
                at_alpha = replace(settings, alpha=alpha)
                chosen = problem.design(_stagewise(problem, at_alpha, None)[0])
            alone = _without_sets(problem, settings, chosen, alpha)
            return alone.sets - alpha

        top = _last_root(excess, top if top > 0 else 0.5 * high, high)
    _warn_of_violation(alone.kkt, settings.tol)
    return top * (1 + ALPHA_ERROR)


def _last_root(excess: Callable[[float], float], low: float, high: float) -> float:
    """Return the alpha, at most `high`, above which the excess is negative; 0 if there is none.

    The search starts at `low`, and goes on below it if the excess is negative there, too.
    """
    from scipy.optimize import brentq

    start = low
    while (beyond := excess(low)) < -ALPHA_ERROR * low:
        low *= 0.5
        if low < LEAST_SHARE * start:
            return 0.0
    if beyond <= ALPHA_ERROR * low:
        return low
    return float(brentq(excess, low, high, xtol=0.1 * ALPHA_ERROR * low, rtol=0.1 * ALPHA_ERROR))


class _WithoutSets(NamedTuple):
    """The largest gradients in the model without sets; columns that are constant do not count.

    columns, sets : those of the columns of single nodes, and of the sets of the fit, which are tied
        in a joint fit, divided by their scales.
    intercepts : those of penalised intercepts.
    kkt : (p,), the largest violation of the conditions of each node's intercepts and slopes.
    """

    columns: float
    sets: float
    intercepts: float
    kkt: FloatArray


def _without_sets(
    problem: Problem, settings: FitSettings, design: Design, alpha: float
) -> _WithoutSets:
    """Return the gradients in the model without sets, at this alpha."""
    at_alpha = replace(settings, alpha=alpha, screening="kkt")
    alone = Design(design.samples, design.features, (), {})
    fits = solve_nodes(problem, alone, at_alpha, None)
    target = min(0.5 * settings.tol, PRECISE)
    columns = intercepts = 0.0
    if settings.is_joint:
        start = symmetrize(fits, alone, problem.without_sets(), problem.intercepts, "average")
        joint = problem.joint(design, at_alpha)
        active = joint.active_set_of(start)
        residuals = joint.solver.solve(active, target)[0]
    penalised = problem.intercepts.coordinates[problem.intercepts.penalised]
    for node in np.flatnonzero(problem.varying).tolist():
        regression = problem.node(node, design, at_alpha)
        residual = (
            residuals[node] if settings.is_joint else regression.without_sets(fits[node], target)
        )
        columns = max(columns, regression.largest_gradient(residual))
        slopes = np.abs(residual.mean(axis=0)[penalised])
        intercepts = max(intercepts, float(slopes.max(initial=0.0)))
    sets = joint.largest_gradient(residuals, active, columns) if settings.is_joint else columns
    return _WithoutSets(columns, sets, intercepts, np.array([fit.kkt for fit in fits]))


def symmetrize(
    fits: Sequence[NodeFit], design: Design, blank: Parameters, of_node: Intercepts, rule: str
) -> Parameters:
    """Return one model from p node fits.

    A set S has |S| estimates, one from each of its nodes; the estimate is 0 if the node did not
    select S.  rule : "average", their mean; "min", the estimate with the smallest absolute value (0
    unless all nodes select S); "max", the one with the largest.  blank : the families and k.
    """
    intercepts, f = np.zeros(blank.intercepts.shape), of_node.coordinates.size
    node_coefs = np.array([fit.intercepts for fit in fits])
    intercepts[:, of_node.coordinates] = node_coefs[:, :f]
    interactions = []
    for number, block in enumerate(design.blocks):
        sets, values = [], []
        for node, fit in enumerate(fits):
            of_block = fit.term == number
            members = design.members(block, fit.key[of_block])
            with_node = np.concatenate([np.full((len(members), 1), node), members], axis=1)
            sets.append(np.sort(with_node, axis=1))
            values.append(fit.values[of_block])
        interactions.append(
            _combine(block.term, np.concatenate(sets), np.concatenate(values), rule)
        )
    return replace(
        blank, intercepts=intercepts, interactions=tuple(interactions), slopes=node_coefs[:, f:]
    )


def _combine(term: Term, sets: IntArray, values: FloatArray, rule: str) -> Interactions:
    """Return the merged nonzero estimates; rows of sets (m, size) may repeat."""
    distinct, inverse, counts = np.unique(sets, axis=0, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    if rule == "average":
        merged = np.bincount(inverse, values, minlength=len(distinct)) / term.size
    else:
        order = np.argsort(np.abs(values), kind="stable")
        if rule == "min":
            order = order[::-1]
        merged = np.zeros(len(distinct))
        merged[inverse[order]] = values[order]  # for repeated indices, the last value remains
        if rule == "min":
            merged[counts < term.size] = 0.0
    nonzero = merged != 0
    return Interactions(term, distinct[nonzero], merged[nonzero])


def cliques(sets: IntArray, features: int) -> IntArray:
    """Return the ascending sets (c, size + 1), all of whose subsets of `size` are in `sets`.

    sets : (m, size).  For pairs, these are the triangles of their graph (Section 6 of the paper).
    """
    size = sets.shape[1]
    given_sets = {tuple(row) for row in sets.tolist()}
    ends_of: dict[tuple[int, ...], set[int]] = {}
    for row in given_sets:
        ends_of.setdefault(row[:-1], set()).add(row[-1])
    larger_sets = []
    for start, ends in ends_of.items():
        ordered = sorted(ends)
        for i, a in enumerate(ordered):
            for b in ordered[i + 1 :]:
                candidate = (*start, a, b)
                if all(candidate[:q] + candidate[q + 1 :] in given_sets for q in range(size + 1)):
                    larger_sets.append(candidate)
    return np.array(sorted(larger_sets), dtype=np.int64).reshape(-1, size + 1)


@contextmanager
def node_progress(names: Sequence[str] | None) -> Iterator[Progress | None]:
    """Yield a function (node, fit) that moves a progress bar after each node; None without names.

    The bar shows the finished nodes, the remaining time, the last node and its nonzeros.
    """
    if names is None:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("nodes"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )  # fmt: skip
    with Bar(*columns, console=_console()) as bar:
        task = bar.add_task("", total=len(names))

        def advance(node: int, fit: NodeFit) -> None:
            bar.update(task, advance=1, description=f"{names[node]}: {fit.values.size} non-zeros")

        yield advance


def _console() -> "Console":
    """Return the console for a progress bar.

    In a notebook without ipywidgets, it prints plain text once at the end; Rich would warn there
    that ipywidgets is not installed.
    """
    from rich.console import Console

    console = Console()
    if console.is_jupyter and importlib.util.find_spec("ipywidgets") is None:
        return Console(force_jupyter=False, force_terminal=False)
    return console
