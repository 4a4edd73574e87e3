"""Inference by name: `infer(model, method, **options)`.

Methods and where their options are documented:

- "exact" : `exact_inference`
- "bp", "max_product", "trw" : `fstgrad.mrf.messages.propagation`
- "mean_field" : `fstgrad.mrf.mean_field`
- "gibbs", "chromatic", "blocked", "metropolis" : `fstgrad.mrf.sampling.marginals`
"""

import importlib
import inspect
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fstgrad.checks import one_of, positive_integer
from fstgrad.errors import InvalidInputError
from fstgrad.mrf.model import PairwiseMRF
from fstgrad.mrf.result import Inference

Entry = tuple[str, str, dict[str, object]]

# method -> (module, function, what the name fixes)
METHODS: dict[str, Entry] = {
    "exact": ("fstgrad.mrf.methods", "exact_inference", {}),
    "bp": ("fstgrad.mrf.messages.propagation", "belief_propagation", {}),
    "max_product": ("fstgrad.mrf.messages.propagation", "max_product", {}),
    "trw": ("fstgrad.mrf.messages.propagation", "tree_reweighted", {}),
    "mean_field": ("fstgrad.mrf.mean_field", "mean_field", {}),
    "gibbs": ("fstgrad.mrf.sampling.marginals", "sample_marginals", {"sampler": "gibbs"}),
    "chromatic": ("fstgrad.mrf.sampling.marginals", "sample_marginals", {"sampler": "chromatic"}),
    "blocked": ("fstgrad.mrf.sampling.marginals", "sample_marginals", {"sampler": "blocked"}),
    "metropolis": ("fstgrad.mrf.sampling.marginals", "sample_marginals", {"sampler": "metropolis"}),
}


def infer(model: PairwiseMRF, method: str, **options: Any) -> Inference:
    """Return what a method finds about `model`; options are those of the method's function."""
    result: Inference = resolve(METHODS, method, options)(model)
    return result


def resolve(
    table: Mapping[str, Entry], method: str, options: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return the function of a method with its options set; wrong options name the right ones."""
    one_of("method", method, list(table))
    module, name, fixed = table[method]
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    known = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and name not in fixed
    ]
    for name in options:
        if name not in known:
            raise InvalidInputError(
                f"method {method!r} has no option {name!r}; it has {', '.join(known) or 'none'}"
            )
    return partial(function, **fixed, **options)


def exact_inference(model: PairwiseMRF, *, max_bytes: int | None = None) -> Inference:
    """Return exact log Z and marginals.

    Parameters
    ----------
    max_bytes : int
        Limit on the tables of elimination (default 4 GiB); forests need none.
    """
    begun = time.perf_counter()
    if max_bytes is None or model.graph.is_forest:
        value, table = model.log_partition(), model.marginals()
    else:
        from fstgrad.mrf.exact.elimination import Elimination

        engine = Elimination(model, positive_integer("max_bytes", max_bytes))
        value, table = engine.log_partition() + model.offset, engine.marginals()
    return Inference(
        "exact", value, "exact", table.node, lambda low, high: table.edge[low:high].copy(),
        model.graph.num_edges, seconds=time.perf_counter() - begun,
    )  # fmt: skip
