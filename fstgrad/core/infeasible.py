"""The option `infeasible` of a batch: infeasible items are named in one error, or count as zero.

An item is infeasible if no structure of it has a finite score (Z = 0), if its gold structure has
the probability 0 (a CTC target that needs more frames, a string that is not in the lattice, a tree
that the mask excludes), or if nothing of it is left (an empty list, a mask that is all False).
Invalid numbers, such as a score that is NaN, are an error with either choice.
"""

from collections.abc import Callable, Iterable
from typing import Literal, TypeVar, cast

from fstgrad.core.checks import one_of
from fstgrad.core.errors import InfeasibleError

Infeasible = Literal["raise", "zero"]
CHOICES: tuple[Infeasible, ...] = ("raise", "zero")
REMEDY = "leave these items out, or give infeasible='zero'"
Item = TypeVar("Item")
Result = TypeVar("Result")


def check_infeasible(infeasible: str) -> Infeasible:
    """Return the option `infeasible`; raise InvalidInputError unless it is one of `CHOICES`."""
    return cast(Infeasible, one_of("infeasible", infeasible, CHOICES))


def feasible_results(
    items: Iterable[Item], run: Callable[[Item], Result], infeasible: Infeasible
) -> list[Result | None]:
    """Return run(item) of each item; None for an infeasible one, if these count as zero.

    Raises
    ------
    InfeasibleError
        `run` raised it for some items, and `infeasible` is "raise"; it names all of them.
    """
    results: list[Result | None] = []
    reasons: dict[int, str] = {}
    for i, item in enumerate(items):
        try:
            results.append(run(item))
        except InfeasibleError as error:
            reasons[i] = str(error)
            results.append(None)
    if reasons and infeasible == "raise":
        raise InfeasibleError.of_items(reasons, REMEDY)
    return results
