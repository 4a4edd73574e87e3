"""The objectives as modules, for networks that define their loss as a module.

A module stores the settings that do not change between steps (the loss, the graph, the reduction
and all other options) and calls its function.  Modules have no parameters: a `state_dict` is empty.
"""

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from fstgrad.core.checks import generator, one_of
from fstgrad.core.errors import InvalidInputError
from fstgrad.objectives.base import Objective, check_objective
from fstgrad.objectives.sampling import Estimate, Sampling
from fstgrad.torch import crf, ctc, lattices, mrf, nbest, strings, trees
from fstgrad.torch.operators import REDUCTIONS, function_of, reduced


class ObjectiveModule(torch.nn.Module):
    """A function of this package with its settings.

    The settings are `reduction`, the function's `loss` or `graph`, and all its keyword-only
    parameters except tensors (`lengths`, `start`, `end`), with the same names and defaults.  A
    module that can sample has `last`, the estimates of the last batch.
    `forward` has the other parameters in the same order, keyword-only ones last.
    """

    function: ClassVar[Callable[..., torch.Tensor]]
    inputs: ClassVar[tuple[str, ...]]
    settings: ClassVar[tuple[str, ...]]
    reduces: ClassVar[bool]  # whether the function takes `reduction`

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__()
        bound = inspect.signature(type(self)).bind(*given, **named)
        bound.apply_defaults()
        one_of("reduction", bound.arguments["reduction"], REDUCTIONS)
        for name, value in bound.arguments.items():
            setattr(self, name, value)
        options = bound.arguments.get("options", {})
        if "rng" in options:  # a seed is used for the first step, not again for every step
            self.options = options | {"rng": generator(options["rng"])}
        if bound.arguments.get("sampling", self) is None:
            self.sampling = Sampling()

    def forward(self, *given: Any, **named: Any) -> torch.Tensor:
        """Return the objective of the inputs."""
        if len(given) > len(self.inputs):
            raise InvalidInputError(
                f"{type(self).__name__} takes {', '.join(self.inputs)}; got {len(given)} arguments"
            )
        settings = {name: getattr(self, name) for name in self.settings}
        settings |= getattr(self, "options", {})
        inputs = dict(zip(self.inputs, given, strict=False)) | named
        if self.reduces:
            return type(self).function(**inputs, **settings, reduction=self.reduction)
        return reduced(type(self).function(**inputs, **settings), str(self.reduction))

    def extra_repr(self) -> str:
        """Show the settings."""
        shown = ((name, getattr(self, name)) for name in (*self.settings, "reduction"))
        return ", ".join(f"{name}={_short(value)}" for name, value in shown)


def _module(name: str, function: Callable[..., torch.Tensor]) -> type[ObjectiveModule]:
    """Return the module class of a function."""
    parameters = inspect.signature(function).parameters
    settings, inputs, options = [], [], []
    for parameter in parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            options = [parameter]
        elif parameter.name in ("lengths", "start", "end"):
            inputs.append(parameter.name)
        elif parameter.name in ("loss", "graph") or parameter.kind is parameter.KEYWORD_ONLY:
            settings.append(parameter)
        else:
            inputs.append(parameter.name)
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    settings = [p.replace(kind=positional) if p.name in ("loss", "graph") else p for p in settings]
    first = [p for p in settings if p.kind is positional]
    others = [p for p in settings if p.kind is not positional and p.name != "reduction"]
    # `reduction` may be given by position after the loss or the graph
    reduction = inspect.Parameter("reduction", positional, default="mean")
    attributes = {
        "function": staticmethod(function),
        "inputs": tuple(inputs),
        "settings": tuple(p.name for p in (*first, *others)),
        "reduces": "reduction" in parameters,
        "__signature__": inspect.Signature([*first, reduction, *others, *options]),
        "__module__": __name__,
        "__doc__": f"Module of `fstgrad.torch.{function.__name__}`: settings and reduction.",
    }
    if "sampling" in parameters:
        attributes["last"] = property(_last)
    return type(name, (ObjectiveModule,), attributes)


def _last(module: Any) -> tuple[Estimate, ...]:
    """Return the interval and reliability of each item of the last batch."""
    estimates: tuple[Estimate, ...] = module.sampling.last
    return estimates


def module_of(objective: type[Objective]) -> type[ObjectiveModule]:
    """Return the module class of an objective, whose name ends in Loss; see `function_of`.

    Parameters
    ----------
    objective : subclass of `fstgrad.objectives.base.Objective`
    """
    check_objective(objective)
    module = _module(f"{objective.__name__}Loss", function_of(objective))
    module.__module__, module.__doc__ = objective.__module__, objective.__doc__
    return module


def _short(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    return type(value).__name__


SoftmaxMarginLoss = _module("SoftmaxMarginLoss", strings.softmax_margin)
RiskLoss = _module("RiskLoss", strings.risk)
CRFLoss = _module("CRFLoss", strings.crf_nll)
CTCLoss = _module("CTCLoss", ctc.ctc_nll)
CTCSoftmaxMarginLoss = _module("CTCSoftmaxMarginLoss", ctc.ctc_softmax_margin)
CTCRiskLoss = _module("CTCRiskLoss", ctc.ctc_risk)
NBestRiskLoss = _module("NBestRiskLoss", nbest.nbest_risk)
LinearChainLoss = _module("LinearChainLoss", crf.linear_chain_nll)
LatticeSoftmaxMarginLoss = _module("LatticeSoftmaxMarginLoss", lattices.lattice_softmax_margin)
LatticeRiskLoss = _module("LatticeRiskLoss", lattices.lattice_risk)
LatticeCRFLoss = _module("LatticeCRFLoss", lattices.lattice_crf_nll)
SpanningTreeLoss = _module("SpanningTreeLoss", trees.spanning_tree_nll)
SpanningTreeEntropyLoss = _module("SpanningTreeEntropyLoss", trees.spanning_tree_entropy)
SpanningTreeKLLoss = _module("SpanningTreeKLLoss", trees.spanning_tree_kl)
SpanningTreeRiskLoss = _module("SpanningTreeRiskLoss", trees.spanning_tree_risk)
SpanningTreeGeneralizedExpectationLoss = _module(
    "SpanningTreeGeneralizedExpectationLoss", trees.spanning_tree_generalized_expectation
)
MRFLoss = _module("MRFLoss", mrf.mrf_nll)
