"""The contract of an objective: B values, functions of arrays, with their exact gradients.

The items of a batch are shared by the threads of a `Team`.
"""

from collections.abc import Callable, Sequence
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import IntArray
from fstgrad.core.errors import InfeasibleError, InvalidInputError, NotSupportedError
from fstgrad.mrf.resources import ThreadRanges

Array = npt.NDArray[Any]
Arrays = Sequence[Array]


class Team:
    """Threads that share the items of a batch; each item writes only its own results.

    The results do not depend on the number of threads.

    Parameters
    ----------
    size : int
        The number of threads.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    def each(self, items: int, run: Callable[[int], None]) -> None:
        """Call run(i) for every item.

        Raises
        ------
        InfeasibleError
            Items are infeasible; it has the reasons of all of them.
        """
        reasons: dict[int, str] = {}

        def piece(low: int, high: int) -> None:
            for i in range(low, high):
                try:
                    run(i)
                except InfeasibleError as error:
                    reasons[i] = str(error)

        self.slices(items, piece)
        if reasons:
            raise InfeasibleError.of_items(reasons)

    def slices(self, items: int, run: Callable[[int, int], None]) -> None:
        """Call run(low, high), high exclusive, for slices of 0 .. items - 1, one per thread."""
        if items:
            with ThreadRanges(items, self.size) as ranges:
                ranges(run)


ALONE = Team(1)


class Objective:
    """B scalars; scalar i depends only on the slices scores[k][i] and constants[k][i].

    A new objective needs a subclass and nothing else: `fstgrad.torch.function_of`,
    `fstgrad.torch.module_of` and `fstgrad.jax.function_of` make functions and modules of it.

    Attributes
    ----------
    what : str
        Its name in errors.
    score_names, constant_names : tuple of str
        The names of the arrays that `evaluate` takes, in this order.
    """

    what = "this objective"
    score_names: tuple[str, ...] = ("scores",)
    constant_names: tuple[str, ...] = ()

    @classmethod
    def function(cls, call: Callable[..., Any], *options: Parameter) -> Callable[..., Any]:
        """Return a function of the scores and constants and, by keyword, settings and options.

        The settings are the parameters of the constructor.

        Parameters
        ----------
        call : function of the list of arrays, the list of settings, and the options by keyword
            How a framework evaluates the objective.
        options : keyword-only parameters of the framework
        """
        array_names = (*cls.score_names, *cls.constant_names)
        settings = signature(cls).parameters
        setting_names = tuple(settings)
        parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in array_names]
        parameters += [s.replace(kind=Parameter.KEYWORD_ONLY) for s in settings.values()]
        full = Signature([*parameters, *options])

        def function(*given: Any, **named: Any) -> Any:
            bound = full.bind(*given, **named)
            bound.apply_defaults()
            arrays = [bound.arguments.pop(name) for name in array_names]
            chosen = [bound.arguments.pop(name) for name in setting_names]
            return call(arrays, chosen, **bound.arguments)

        function.__signature__ = full  # type: ignore[attr-defined]
        function.__doc__, function.__module__ = cls.__doc__, cls.__module__
        function.__name__ = function.__qualname__ = cls.__name__
        return function

    @classmethod
    def check_items(cls, arrays: Sequence[Any]) -> None:
        """Raise InvalidInputError unless all arrays have the same number of items."""
        names = (*cls.score_names, *cls.constant_names)
        for name, array in zip(names, arrays, strict=True):
            if array.ndim == 0 or array.shape[0] != arrays[0].shape[0]:
                raise InvalidInputError(
                    f"{names[0]} has the shape {tuple(arrays[0].shape)}, {name} "
                    f"{tuple(array.shape)}; the first axis is the batch"
                )

    def is_twice_differentiable(self) -> bool:
        """Return whether `hessian_product` is available."""
        return False

    def part(self, items: IntArray, size: int) -> "Objective":
        """Return the objective of some items of a batch of `size`; itself if it knows no items."""
        return self

    def left_out(self, kept: IntArray, items: int) -> None:
        """Note that only the items `kept` of a batch were evaluated last."""

    def evaluate(
        self, scores: Arrays, constants: Arrays, team: Team = ALONE
    ) -> tuple[Array, Arrays]:
        """Return the values (B,) float64 and, for each array of scores, a gradient of its shape.

        The gradients are new arrays, which the caller may overwrite.

        Parameters
        ----------
        scores : arrays (B, ...), float32 or float64, read-only
        constants : arrays (B, ...) of any dtype, read-only
        team : Team
            The threads to use.  Results do not depend on their number, to the last bit.

        Raises
        ------
        InfeasibleError
            Items have no structure, or no gold, of finite score.  `FeasibleItems` names them all,
            or goes on without them.
        """
        raise NotImplementedError

    def check(self, scores: Arrays, constants: Arrays) -> None:
        """Check the constants: raise the error of `evaluate`, if any, at scores of zero."""
        self.evaluate(scores, constants)

    def measure(self, constants: Arrays, team: Team = ALONE) -> Array:
        """Return a float64 table of the constants, for an objective that has no scores."""
        raise NotImplementedError

    def hessian_product(self, scores: Arrays, constants: Arrays, directions: Arrays) -> Arrays:
        """Return the Hessian times the directions, one float64 array for each array of scores.

        Raises
        ------
        NotSupportedError
            The objective has no Hessian product.
        """
        raise self.no_second_derivative()

    def no_second_derivative(self) -> NotSupportedError:
        """Return the error that `hessian_product` raises if it is not available."""
        return NotSupportedError(
            f"{self.what} has no second derivative here; differentiate softmax_margin or crf_nll "
            "twice, or use first derivatives only"
        )


def check_objective(objective: object) -> None:
    """Raise InvalidInputError unless this is a subclass of `Objective`."""
    if not (isinstance(objective, type) and issubclass(objective, Objective)):
        raise InvalidInputError(
            f"objective is {objective!r}; give a subclass of fstgrad.objectives.base.Objective"
        )


def zeros(scores: Arrays) -> list[Array]:
    """Return zeros of the shapes and dtypes of the scores."""
    return [np.zeros(table.shape, table.dtype) for table in scores]
