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
    candidates: dict[int, IntArray],
    start: tuple[list[NodeFit], Parameters] | None = None,
) -> Solution:
    """Return the fit of a model.

    start : the node fits and the parameters of an earlier fit; not used if it does not match.
    candidates : the candidate sets {size: (m, size)}; a size that is missing has all sets.
    """
    k, features, is_joint = problem.k, problem.x.shape[1], settings.is_joint
    node_fits, last = start if start and _matches(problem, *start) else (None, None)
    if settings.stagewise:
        candidates = dict(candidates)
        for size in range(2, k):
            larger = {s: np.zeros((0, s), np.int64) for s in range(size + 1, k + 1)}
            design = problem.design({**candidates, **larger})
            node_fits = _fit_stage(problem, design, settings, node_fits, size)
            candidates[size + 1] = cliques(_selected(problem, node_fits, design, size), features)
    design = problem.design(candidates)
    if node_fits is None or not is_joint or settings.stagewise:
        first = problem.pairs_of(design) if is_joint else design
        node_fits, last = _fit_stage(problem, first, settings, node_fits, k), None
    return _combined(problem, settings, design, node_fits, last)


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
    kkt = solution.kkt
    if kkt.max() > tol:
        worst = int(np.argmax(kkt))
        warnings.warn(
            f"node {worst} stopped at a violation of {kkt[worst]:.2g} > tol={tol}; "
            "raise max_iter or tol",
            stacklevel=4,
        )
    answer = normalization.is_normalizable(solution.parameters)
    if answer.value is False:
        warnings.warn(
            f"the fitted model has no normalizer ({answer.certificate}): it has node "
            "conditionals, but no joint distribution to sample from; raise alpha, give "
            'symmetrize="min", or use a base of counts',
            stacklevel=4,
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

    This is the largest gradient of a set, divided by its scale, at the independent model.  For a
    joint fit, it is the largest tied gradient: if the tied gradient of a set exceeds a bound, so
    does the gradient of one of its nodes; the bound is lowered until the largest tied gradient
    found exceeds it.
    """
    design = problem.design({})
    alone = replace(settings, alpha=1e300, screening="kkt")
    fits = solve_nodes(problem, design, alone, None)
    start = symmetrize(fits, design, problem.without_sets(), problem.intercepts, "average")
    regression = problem.joint(design, alone)
    active = regression.active_set_of(start)
    residual = regression.solver.solve(active, 0.5 * settings.tol)[0]
    top = 0.0
    for number, block in enumerate(design.blocks):
        for node in np.flatnonzero(problem.varying).tolist():
            columns = design.columns(block, node)
            slopes = np.abs(design.gradients(number, columns, residual[node]))
            scaled = slopes / np.maximum(block.scale[columns], 1e-300)
            top = max(top, float(scaled.max(initial=0.0)))
    bound = 0.5 * top
    while settings.is_joint and top > 0:
        excess = regression.violators(residual, active, bound)[2]
        largest = bound + float(excess.max(initial=-np.inf))
        if largest >= bound:
            top = largest
            break
        bound *= 0.5
    return top * (1 + 1e-9)


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
