"""Inference by name: `infer(model, method, **options)`.

The methods, and the functions or modules that document their options:

- "exact" : `exact_inference`
- "bp", "max-product", "trw" : `fstgrad.mrf.messages.belief_propagation`
- "mean-field" : `fstgrad.mrf.mean_field`; "bounds" : `fstgrad.mrf.bounds`
- "ais" : `fstgrad.mrf.sampling.annealing`, by `checked_annealing`
- "gibbs", "chromatic", "blocked", "metropolis", "swendsen-wang", "tempered" :
  `fstgrad.mrf.sampling.marginals`
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, TypeVar

from fstgrad.core.checks import Seed, one_of
from fstgrad.core.errors import InvalidInputError
from fstgrad.mrf.bounds import bounds
from fstgrad.mrf.exact.engine import LOWEST_ROUGH, exact, require_precision
from fstgrad.mrf.mean_field import mean_field
from fstgrad.mrf.messages.belief_propagation import belief_propagation, max_product, tree_reweighted
from fstgrad.mrf.result import Annealed, Inference
from fstgrad.mrf.sampling.annealing import annealed
from fstgrad.mrf.sampling.chains import SAMPLERS
from fstgrad.mrf.sampling.marginals import sample_marginals
from fstgrad.mrf.scored_graph import ScoredGraph
from fstgrad.mrf.trw_s import tree_mode

_ERRORS = 4.0  # standard errors by which an estimate may miss a lower bound
Result = TypeVar("Result")


@dataclass(frozen=True)
class Method(Generic[Result]):
    """A function of a model whose keyword-only arguments are the method's options.

    Attributes
    ----------
    function : callable
    fixed : options whose values the name of the method determines
    """

    function: Callable[..., Result]
    fixed: Mapping[str, object] = field(default_factory=dict)

    @property
    def options(self) -> list[str]:
        """The names of the options that a caller can set."""
        keywords = self.function.__kwdefaults__ or {}
        return [name for name in keywords if name not in self.fixed]


def bound(
    table: Mapping[str, Method[Result]], name: str, options: Mapping[str, Any]
) -> Callable[..., Result]:
    """Return the function of method `name` of a table, with its options set.

    Raises InvalidInputError for an unknown method or option.
    """
    method = table[one_of("method", name, list(table))]
    for option in options:
        if option not in method.options:
            raise InvalidInputError(
                f"method {name!r} has no option {option!r}; it has "
                f"{', '.join(method.options) or 'none'}"
            )
    return partial(method.function, **method.fixed, **options)


def exact_inference(model: ScoredGraph, *, max_memory: int | None = None) -> Inference:
    """Return exact log Z and marginals.

    Parameters
    ----------
    max_memory : int, optional
        Limit on the tables of elimination in bytes (default 4 GiB); forests need no tables.

    Raises
    ------
    MemoryLimitError
        Elimination needs more memory.
    InfeasibleError
        Every labeling is forbidden.
    """
    begun = time.perf_counter()
    results = exact(model, max_memory)
    value, table = results.log_partition, results.marginals
    return Inference(
        "exact", value, "exact", table.node, lambda low, high: table.edge[low:high].copy(),
        model.graph.num_edges, factors=table.factors, seconds=time.perf_counter() - begun,
    )  # fmt: skip


def checked_annealing(
    model: ScoredGraph, *, steps: int = 200, runs: int = 100, rng: Seed = None
) -> Annealed:
    """Return the result of `annealed`, converged unless a labeling proves that log Z is larger.

    The labeling is that of `fstgrad.mrf.trw_s`; log Z is at least its score.  Options and errors
    are as in `annealed`.
    """
    result = annealed(model, steps=steps, runs=runs, rng=rng)
    lower = tree_mode(model, max_cells=0, restarts=0).score
    error = _ERRORS * result.log_partition_error + 1e-9 * max(1.0, abs(result.log_partition))
    return replace(result, converged=lower <= result.log_partition + error)


METHODS: dict[str, Method[Inference]] = {
    "exact": Method(exact_inference),
    "bp": Method(belief_propagation),
    "max-product": Method(max_product),
    "trw": Method(tree_reweighted),
    "mean-field": Method(mean_field),
    "bounds": Method(bounds),
    "ais": Method(checked_annealing),
    **{name: Method(sample_marginals, {"sampler": name}) for name in (*SAMPLERS, "tempered")},
}


def infer(model: ScoredGraph, method: str, **options: Any) -> Inference:
    """Return the result of a method for `model`; the options are those of the method's function.

    Raises InvalidInputError for an unknown method or option.
    """
    recentered, offset = model.recentered
    result = bound(METHODS, method, options)(recentered)
    require_precision(result.log_partition, LOWEST_ROUGH)
    return result.shifted(offset)
