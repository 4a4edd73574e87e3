"""Training losses of a Markov random field in nats, each with its gradient by the scores.

    value, gradient = nll(model, gold, method, **options)

- "exact" : -log p(gold); gradient = marginals - gold (the model-marginals theorem).
- "bp", "trw", "mean-field" : the same with an estimate of or a bound on log Z, and its marginals.
- "pseudolikelihood" : -sum_i log P(gold_i | gold elsewhere), with its exact gradient.
- "cd" : contrastive divergence: k steps of chains from gold, or of persistent chains; a step is a
  sweep, or with steps="nodes" one draw at one node, as in the source.
- "cd1" : one Gibbs draw at one random node, times the number of nodes: the expectation of its
  gradient is the gradient of the pseudolikelihood.
- "hinge" : structured hinge, max_y [s(y) + cost * (number of wrong labels)] - s(gold), with the
  maximum by a minimum cut or another decoder.

The gradient is a `Table`; for shared edge scores its edge part is (C, C), summed over the edges.

Source: D. McAllester, TTIC 31230 (2019), "Pseudo-Likelihood and Contrastive Divergence"; Besag
(1975); Hinton (2002); Tieleman (2008) for persistent chains.
"""

import re
import warnings
from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    Seed,
    generator,
    instance,
    integers,
    one_of,
    output_array,
    positive_integer,
    positive_number,
    real_number,
)
from fstgrad.core.errors import (
    InfeasibleError,
    InvalidInputError,
    MemoryLimitError,
    NotSupportedError,
)
from fstgrad.mrf import kernels
from fstgrad.mrf.decoding import decode
from fstgrad.mrf.exact.engine import exact, remedy
from fstgrad.mrf.inference import METHODS, Method, bound
from fstgrad.mrf.result import Inference
from fstgrad.mrf.sampling.chains import (
    Chain,
    Sampler,
    allowed_at_nodes,
    new_keys,
    random_labels,
)
from fstgrad.mrf.scored_graph import ScoredGraph, Table

Steps = Literal["sweeps", "nodes"]
STEPS: tuple[Steps, ...] = get_args(Steps)
UNKNOWN = -1


def counts(model: ScoredGraph, labels: IntArray, weight: float, out: Table | None = None) -> Table:
    """Add weight times the indicators of labels (I,) to a table like the scores; return the table.

    out : Table of writable float64 arrays, changed in place; by default zeros.
    """
    labels = _labels(model, labels, "labels")
    weight = real_number("weight", weight)
    out = zeros(model) if out is None else _like(model, out)
    kernels.sites.count_parts(labels, model.graph.edges, weight, out.node, _stack(out.edge))
    out.factors[model.factors.cells(labels)] += weight
    return out


def zeros(model: ScoredGraph) -> Table:
    """Return a table of zeros with the shapes of the model's scores."""
    instance("model", model, ScoredGraph, "a PairwiseMRF")
    return Table(*(np.zeros(array.shape) for array in (*model.scores, model.scores.factors)))


def _labels(model: ScoredGraph, labels: npt.ArrayLike, name: str = "gold") -> IntArray:
    """Return labels (I,) int64, checked, because kernels use labels as indices."""
    instance("model", model, ScoredGraph, "a PairwiseMRF")
    checked: IntArray = model.labeling(labels, name)
    return checked


def _like(model: ScoredGraph, out: Table) -> Table:
    """Return `out` after checking that it is a writable table with the shapes of the scores."""
    instance("out", out, Table, "a Table")
    for name in ("node", "edge", "factors"):
        shape = getattr(model.scores, name).shape
        output_array(f"out.{name}", getattr(out, name), shape)
    return out


def _stack(edge: FloatArray) -> FloatArray:
    """Return (C, C) as (1, C, C)."""
    return edge[None] if edge.ndim == 2 else edge


def exact_nll(model: ScoredGraph, gold: IntArray) -> tuple[float, Table]:
    """Return -log p(gold) in nats and its gradient, marginals - gold; inf if gold is forbidden."""
    gold = _labels(model, gold)
    with remedy("use method 'bp', 'trw' or 'pseudolikelihood'"):
        results = exact(model)
        log_z, marginals = results.log_partition, results.marginals
    gradient = add_marginals(counts(model, gold, -1.0), marginals, 1.0)
    return log_z - model.score(gold), gradient


def add_marginals(out: Table, marginals: Table, weight: float) -> Table:
    """Add weight times marginals to `out`, in place, summed over edges for (C, C); return `out`."""
    instance("out", out, Table, "a Table")
    instance("marginals", marginals, Table, "a Table")
    weight, edge = real_number("weight", weight), marginals.edge
    out.node[...] += weight * marginals.node
    out.edge[...] += weight * (edge.sum(axis=0) if out.edge.ndim < edge.ndim else edge)
    out.factors[...] += weight * marginals.factors
    return out


def pseudolikelihood(model: ScoredGraph, gold: IntArray) -> tuple[float, Table]:
    """Return -sum_i log P(gold_i | gold elsewhere) in nats and its gradient, O(E C).

    If gold is forbidden, the value is +inf and the gradient undefined.
    """
    gold, gradient = _labels(model, gold), zeros(model)
    value = kernels.sites.pseudolikelihood(
        model.pieces, gold, gradient.node, _stack(gradient.edge), gradient.factors
    )
    return float(value), gradient


class PersistentChains:
    """Chains that continue from one gradient step to the next (persistent contrastive divergence).

    Parameters
    ----------
    model : PairwiseMRF
        A model with the same graph and label counts as all later models.
    chains : int
    rng : Generator, int or None
    items : int, optional
        The number of items of a batch; each has its own chains, `persistent[b]` for item b.

    Attributes
    ----------
    labels : (chains, I) or (items, chains, I) int64
        The states of the chains.
    """

    def __init__(
        self, model: ScoredGraph, chains: int = 10, rng: Seed = None, *, items: int | None = None
    ) -> None:
        self.rng = generator(rng)
        count = positive_integer("chains", chains)
        number = 1 if items is None else positive_integer("items", items)
        try:
            starts = np.stack([random_labels(model, self.rng) for _ in range(number * count)])
        except NotSupportedError as error:
            raise NotSupportedError(
                "no allowed labeling was found for persistent chains to start from; leave "
                "persistent= out, as the chains then start at gold, or use 'pseudolikelihood'"
            ) from error
        self.labels = starts if items is None else starts.reshape(number, count, -1)

    def __getitem__(self, item: int) -> "PersistentChains":
        """Return the chains of one item; they share memory and generator with these."""
        chains = object.__new__(PersistentChains)
        chains.labels, chains.rng = self.labels[item], self.rng
        return chains


def item_options(options: Mapping[str, Any], item: int, items: int) -> dict[str, Any]:
    """Return the options for one item of a batch, with the persistent chains of this item.

    Raises
    ------
    InvalidInputError
        The chains are for another number of items; items of different distributions share none.
    """
    chains = options.get("persistent")
    if chains is None:
        return dict(options)
    if chains.labels.ndim == 2 and items == 1:
        return dict(options)
    if chains.labels.ndim == 2 or len(chains.labels) != items:
        has = "none" if chains.labels.ndim == 2 else f"{len(chains.labels)}"
        raise InvalidInputError(
            f"persistent has chains for {has} of {items} items of the batch; give "
            f"PersistentChains(model, chains, items={items})"
        )
    return dict(options) | {"persistent": chains[item]}


def contrastive_divergence(
    model: ScoredGraph,
    gold: IntArray,
    *,
    k: int = 1,
    steps: Steps = "sweeps",
    sampler: Sampler = "chromatic",
    chains: int = 1,
    persistent: PersistentChains | None = None,
    rng: Seed = None,
    threads: int = 1,
) -> tuple[float, Table]:
    """Return the energy gap and the contrastive-divergence gradient.

    Chains start at gold, or in the states of `persistent`, and make k steps.  With their final
    states y~ and the indicators t(y) of a labeling,

        value = mean s(y~) - s(gold),    gradient = mean t(y~) - t(gold).

    The value is not a likelihood: CD is not the gradient of any function of the scores.

    Parameters
    ----------
    gold : (I,) int64
    k : int
        The number of steps.
    steps : {"sweeps", "nodes"}
        What a step of a chain is: a sweep of `sampler`, which visits every node, or one Gibbs draw
        at one node, chosen uniformly, as on McAllester's slides.
    sampler : str
        One of `fstgrad.mrf.sampling.chains.SAMPLERS`; only for sweeps.
    chains : int
        The number of chains to average; ignored if `persistent` is given.
    persistent : PersistentChains, optional
        Advanced k steps in place.
    rng : Generator, int or None
        For chains that are not persistent; persistent chains have their own generator.
    threads : int
        For the sampler "chromatic".

    Raises
    ------
    InvalidInputError
        A sampler is given although steps are draws at nodes, or the persistent chains are those of
        several items, or of another number of nodes.
    """
    k = positive_integer("k", k)
    if one_of("steps", steps, STEPS) == "nodes" and sampler != "chromatic":
        raise InvalidInputError(
            f"sampler is {sampler!r} with steps='nodes', which are Gibbs draws; leave it out"
        )
    chains = positive_integer("chains", chains)
    allowed_at_nodes(model)
    if persistent is None:
        starts, random = np.repeat(gold[None], chains, axis=0), generator(rng)
    else:
        starts, random = persistent.labels, persistent.rng
        if starts.ndim != 2:
            raise InvalidInputError(
                f"persistent has chains for {len(starts)} items; give persistent[item]"
            )
        if starts.shape[1] != model.num_nodes:
            raise InvalidInputError(
                f"persistent has chains of {starts.shape[1]} nodes, the model has "
                f"{model.num_nodes}; make the chains from a model of this graph"
            )
    for row, key in zip(starts, new_keys(random, len(starts)), strict=True):
        if steps == "nodes":
            kernels.sites.gibbs_sites(0, k, np.arange(0), key, 0, model.pieces, row)
        else:
            chain = Chain(model, sampler, row, key, threads)
            chain.advance(k)
            row[...] = chain.labels
    gradient = counts(model, gold, -1.0)
    for row in starts:
        counts(model, row, 1.0 / len(starts), gradient)
    score = model.score(gold)
    if score == -np.inf:
        return np.inf, gradient
    return sum(model.score(row) for row in starts) / len(starts) - score, gradient


def one_site_divergence(
    model: ScoredGraph, gold: IntArray, *, rng: Seed = None
) -> tuple[float, Table]:
    """Return what `contrastive_divergence` does for one Gibbs draw at one random node, times I.

    This is CD(1) of McAllester's slides.  The node is uniform, so the expectation of I (t(y~) -
    t(gold)) is sum_i (E[t(y) | y_j = gold_j for j != i] - t(gold)), the gradient of the
    pseudolikelihood.
    """
    value, gradient = contrastive_divergence(model, gold, steps="nodes", rng=rng)
    scaled = (model.num_nodes * part for part in (*gradient, gradient.factors))
    return model.num_nodes * value, Table(*scaled)


def structured_hinge(
    model: ScoredGraph, gold: IntArray, *, decoder: str = "graph-cut", cost: float = 1.0
) -> tuple[float, Table]:
    """Return max_y [s(y) + cost * (number of labels that differ from gold)] - s(gold) in nats.

    Also returns a subgradient, t(best y) - t(gold).

    Parameters
    ----------
    gold : (I,) int64
    decoder : str
        The method for the maximum: "graph-cut", "exact" or another one of `fstgrad.mrf.decoding`.
        If it is not exact, the value is a lower bound on the hinge.
    cost : float
        The cost of a wrong label, in nats, >= 0; 0 for the perceptron.

    Source: Taskar, Guestrin and Koller (2003); Tsochantaridis et al. (2004).
    """
    cost = positive_number("cost", cost, allow_zero=True)
    node = model.scores.node + cost
    node[np.arange(len(gold)), gold] -= cost
    augmented = model.with_scores(node, model.scores.edge)
    try:
        worst = decode(augmented, decoder)
    except (NotSupportedError, MemoryLimitError) as error:
        advice = re.sub(r"decode\(('[\w-]+')\)", r"\1", str(error))
        advice = advice.replace("; use method ", "; use ").replace("; use ", "; give decoder=")
        raise type(error)(advice) from error
    value = worst.score - augmented.score(gold)
    return value, counts(model, worst.labels, 1.0, counts(model, gold, -1.0))


def feasible_nll(
    model: ScoredGraph, gold: npt.ArrayLike, method: str, **options: Any
) -> tuple[float, Table]:
    """Return `nll`; raise InfeasibleError if gold has the probability 0."""
    value, gradient = nll(model, gold, method, **options)
    if value == np.inf:
        raise InfeasibleError("gold has a score of -inf, so its probability is 0")
    return value, gradient


LOSSES: dict[str, Method[tuple[float, Table]]] = {
    "exact": Method(exact_nll),
    "pseudolikelihood": Method(pseudolikelihood),
    "cd": Method(contrastive_divergence),
    "cd1": Method(one_site_divergence),
    "hinge": Method(structured_hinge),
}
ESTIMATES = {name: METHODS[name] for name in ("bp", "trw", "mean-field")}


class Estimated(float):
    """A loss from an estimate of log Z, in nats: a float with measures of its quality.

    Attributes
    ----------
    kind : str
        As in `Inference`: "exact", "bethe", "upper bound", "lower bound".
    converged : bool
    residual : float
        The largest change in the last iteration, of a message in nats or of a marginal (mean
        field); 0 if exact.
    """

    kind: str
    converged: bool
    residual: float

    def __new__(cls, value: float, results: list[Inference]) -> "Estimated":
        """Return the value with its attributes."""
        self = super().__new__(cls, value)
        self.kind = results[0].kind
        self.converged = all(one.converged for one in results)
        self.residual = max(float(np.append(0.0, one.residuals)[-1]) for one in results)
        return self


def nll(
    model: ScoredGraph, gold: npt.ArrayLike, method: str, **options: Any
) -> tuple[float, Table]:
    """Return a loss in nats and its gradient; the module docstring lists the methods.

    gold : (I,) or (height, width) integers.  A label of -1 is unknown; with "exact", "bp", "trw" or
    "mean-field", the value is then -log p(known labels) = log Z - log Z given the known labels.

    The gradient is a Table with the shapes of the scores.  If an estimate of log Z does not
    converge, a RuntimeWarning says so.

    Raises
    ------
    InvalidInputError
        Unknown method or option, or invalid labels.
    NotSupportedError
        There are unknown labels, and the method needs all.
    """
    method = one_of("method", method, [*LOSSES, *ESTIMATES])
    instance("model", model, ScoredGraph, "a PairwiseMRF")
    model, _ = model.recentered
    known = integers("gold", gold)
    if known.shape == (model.num_nodes,) and (known == UNKNOWN).any():
        return _partial_nll(model, known, method, options)
    if method in LOSSES:
        function = bound(LOSSES, method, options)
        return function(model, model.labeling(gold, "gold"))
    estimate = bound(ESTIMATES, method, options)
    labels = model.labeling(gold, "gold")
    result = estimate(model)
    gradient = _add_result(counts(model, labels, -1.0), model, result, 1.0)
    return _estimated(result.log_partition - model.score(labels), [result]), gradient


def _partial_nll(
    model: ScoredGraph, known: npt.NDArray[Any], method: str, options: Mapping[str, Any]
) -> tuple[float, Table]:
    """Return log Z - log Z given the known labels, and the difference of their marginals."""
    if method != "exact" and method not in ESTIMATES:
        raise NotSupportedError(
            f"method {method!r} needs every label, but {int((known == UNKNOWN).sum())} are "
            "unknown; use 'exact', 'bp', 'trw' or 'mean-field'"
        )
    infer = bound({"exact": METHODS["exact"], **ESTIMATES}, method, options)
    given = np.flatnonzero(known != UNKNOWN)
    clamped = model.condition(dict(zip(given.tolist(), known[given].tolist(), strict=True)))
    free, tied = infer(model), infer(clamped)
    gradient = _add_result(_add_result(zeros(model), model, free, 1.0), model, tied, -1.0)
    return _estimated(free.log_partition - tied.log_partition, [free, tied]), gradient


def _add_result(out: Table, model: ScoredGraph, result: Inference, weight: float) -> Table:
    """Add weight times the marginals of a result to a table like the scores; return the table."""
    edge = result.edge_sum if model.shared else result.edge
    return add_marginals(out, Table(result.node, edge, result.factors), weight)


def _estimated(value: float, results: list[Inference]) -> float:
    """Return the value as `Estimated`; warn if a result did not converge."""
    estimated = Estimated(value, results)
    if not estimated.converged:
        warnings.warn(
            f"{results[0].method} did not converge (last change {estimated.residual:.2g}); the "
            "loss and its gradient are not estimates of the likelihood: raise max_iter (or, except "
            "with 'mean-field', damping), or use 'pseudolikelihood'",
            RuntimeWarning,
            stacklevel=4,
        )
    return estimated
