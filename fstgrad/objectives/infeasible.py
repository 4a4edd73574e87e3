"""Objectives that name all infeasible items of a batch in one error, or count them as zero."""

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from fstgrad.core.checks import BoolArray, IntArray
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.infeasible import REMEDY, Infeasible, check_infeasible
from fstgrad.objectives.base import ALONE, Array, Arrays, Objective, Team

Result = TypeVar("Result")


class FeasibleItems(Objective):
    """Another objective, with a choice for the infeasible items of a batch.

    Parameters
    ----------
    objective : Objective
    infeasible : {"raise", "zero"}
        "raise": one error names every infeasible item.  "zero": their values are 0, and so are
        their gradients and Hessian products.  The other items are computed as without them.

    Examples
    --------
    >>> from fstgrad.objectives.ctc import CTCLikelihood
    >>> objective = FeasibleItems(CTCLikelihood(0), "zero")
    >>> gold = np.array([[1, 1], [1, 2]])  # the first needs three frames
    >>> values, _ = objective.evaluate([np.zeros((2, 2, 3))], [gold])
    >>> values.round(4).tolist()
    [0.0, 2.1972]
    """

    def __init__(self, objective: Objective, infeasible: Infeasible = "raise") -> None:
        self.objective, self.infeasible = objective, check_infeasible(infeasible)
        self.what = objective.what
        self.score_names, self.constant_names = objective.score_names, objective.constant_names

    def is_twice_differentiable(self) -> bool:
        """Return whether the objective has Hessian products."""
        return self.objective.is_twice_differentiable()

    def evaluate(
        self, scores: Arrays, constants: Arrays, team: Team = ALONE
    ) -> tuple[Array, Arrays]:
        """Return the values (B,) and the gradients.

        Raises
        ------
        InfeasibleError
            Items are infeasible, and `infeasible` is "raise".
        """
        size = len(scores[0])
        kept, result = self.feasible_items(
            lambda own, given, known: own.evaluate(given, known, team), scores, constants
        )
        if len(kept) == size and result is not None:
            return result
        self.objective.left_out(kept, size)
        values, gradients = result or (np.zeros(0), [table[:0] for table in scores])
        return _placed(values, kept, size), [_placed(table, kept, size) for table in gradients]

    def check(self, scores: Arrays, constants: Arrays) -> None:
        """Check the constants, as the objective does."""
        self.feasible_items(lambda own, *given: own.check(*given), scores, constants)

    def measure(self, constants: Arrays, team: Team = ALONE) -> Array:
        """Return the table of the objective, with rows of +inf for infeasible items."""
        size = len(constants[0])
        kept, table = self.feasible_items(
            lambda own, _, given: own.measure(given, team), (), constants
        )
        if table is None:  # an objective without items measures the shape
            none = [array[:0] for array in constants]
            table = self.objective.part(kept, size).measure(none, team)
        return table if len(kept) == size else _placed(table, kept, size, np.inf)

    def hessian_product(self, scores: Arrays, constants: Arrays, directions: Arrays) -> Arrays:
        """Return the Hessian products; those of infeasible items are 0."""
        if self.infeasible == "raise":
            return self.objective.hessian_product(scores, constants, directions)
        size = len(scores[0])
        kept = np.flatnonzero(self.are_feasible(scores, constants))
        taken = [[array[kept] for array in arrays] for arrays in (scores, constants, directions)]
        products = self.objective.part(kept, size).hessian_product(*taken)
        return [_placed(table, kept, size) for table in products]

    def no_second_derivative(self) -> Any:
        """Return the error of the objective."""
        return self.objective.no_second_derivative()

    def are_feasible(self, scores: Arrays, constants: Arrays) -> BoolArray:
        """Return which items are feasible, (B,)."""
        kept, _ = self.feasible_items(lambda own, *given: own.evaluate(*given), scores, constants)
        return np.isin(np.arange(len(scores[0])), kept)

    def feasible_items(
        self,
        run: Callable[[Objective, Arrays, Arrays], Result],
        scores: Arrays,
        constants: Arrays,
    ) -> tuple[IntArray, Result | None]:
        """Return the feasible items, and the result of `run` for these; None if there are none."""
        size = len((*scores, *constants)[0])
        every = np.arange(size)
        kept, reasons = every, dict[int, str]()
        objective, given = self.objective, (scores, constants)
        result: Result | None = None
        while len(kept) or not reasons:
            try:
                result = run(objective, *given)
                break
            except InfeasibleError as error:
                found = error.reasons or _alone(run, objective, *given)
                if not found:
                    raise
                reasons |= {int(kept[i]): reason for i, reason in found.items()}
            except InvalidInputError as error:
                if not reasons:
                    raise
                without = f"counted without the infeasible items {sorted(reasons)}"
                raise type(error)(f"{error} ({without})") from error
            kept = np.setdiff1d(every, sorted(reasons))
            objective = self.objective.part(kept, size)
            given = [array[kept] for array in scores], [array[kept] for array in constants]
        if reasons and self.infeasible == "raise":
            raise InfeasibleError.of_items(reasons, REMEDY)
        return kept, result


def _alone(
    run: Callable[[Objective, Arrays, Arrays], object],
    objective: Objective,
    scores: Arrays,
    constants: Arrays,
) -> dict[int, str]:
    """Return the reasons of an objective that does not name its items: each is tried alone."""
    reasons, size = {}, len((*scores, *constants)[0])
    for i in range(size):
        one = np.array([i])
        try:
            run(objective.part(one, size), [a[one] for a in scores], [a[one] for a in constants])
        except InfeasibleError as error:
            reasons[i] = str(error)
    return reasons


def _placed(table: Array, kept: IntArray, size: int, rest: float = 0.0) -> Array:
    """Return the rows of the feasible items in a table of all items, filled with `rest`."""
    whole = np.full((size, *table.shape[1:]), rest, dtype=table.dtype)
    whole[kept] = table
    return whole
