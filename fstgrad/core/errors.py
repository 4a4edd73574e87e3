"""The errors of fstgrad: one base class, and one class for each kind of failure.

Every message names the argument, the conflicting values and the remedy.
`UnusedArcsWarning` and `AmbiguousRuleWarning` are warnings, which `warn` emits at the caller.
"""

import sys
import warnings
from collections.abc import Mapping
from typing import Any


class FstgradError(Exception):
    """Base of all errors that fstgrad raises deliberately; the message is one line."""

    def __str__(self) -> str:
        """Return the message with its line breaks (as in a printed table) replaced by spaces."""
        return " ".join(super().__str__().split("\n"))


class InvalidInputError(FstgradError, ValueError):
    """An argument has the wrong shape, type, range or content."""


class AlphabetError(InvalidInputError):
    """A symbol or an id is outside the alphabet."""


class UnknownSymbolError(AlphabetError):
    """A symbol of a sequence is not in the alphabet."""


class FstError(FstgradError):
    """OpenFst cannot perform an operation: arc types or labels conflict, or OpenFst fails."""


# the arrays after whose name the message of an infeasible item has its index
_ARRAYS = (
    "gold",
    "scores",
    "heads",
    "hypotheses",
    "log_probs",
    "mask",
    "allowed",
    "known",
    "pairs",
    "questions",
)
SHOWN_ITEMS = 10


class InfeasibleError(FstgradError):
    """No structure has a finite score, so the partition function is zero.

    Attributes
    ----------
    reasons : dict
        Why, by the index of the item, if items of a batch are known to be infeasible.
    """

    reasons: Mapping[Any, str] = {}

    @classmethod
    def of_items(
        cls, reasons: Mapping[Any, str], remedy: str = "leave these items out"
    ) -> "InfeasibleError":
        """Return the error that names every item of `reasons`, or the first ten and their number.

        A reason "gold needs ..." of item 3 is shown as "gold[3] needs ...", "no tree ..." as
        "item 3: no tree ...".
        """
        shown = []
        for item in sorted(reasons)[:SHOWN_ITEMS]:
            name, _, rest = reasons[item].partition(" ")
            shown.append(
                f"{name}[{item}] {rest}" if name in _ARRAYS else f"item {item}: {reasons[item]}"
            )
        if len(reasons) > SHOWN_ITEMS:
            shown.append(f"and {len(reasons) - SHOWN_ITEMS} more")
        count = f"{len(reasons)} items are infeasible: " if len(reasons) > 1 else ""
        error = cls(f"{count}{'; '.join(shown)}; {remedy}")
        error.reasons = {item: reasons[item] for item in sorted(reasons)}
        return error


class StateLimitError(FstgradError):
    """A determinization would exceed `max_states`, or the memory limit derived from it.

    Parameters
    ----------
    states : int
        The number of states reached or predicted.
    limit : int
        The limit, `max_states`.
    where : str
        The computation that stopped, with its sizes.
    remedy : str
        The alternative for the caller.
    nbytes : int, optional
        For the memory limit: the predicted bytes, which were not allocated.
    """

    def __init__(
        self, states: int, limit: int, *, where: str, remedy: str, nbytes: int | None = None
    ) -> None:
        passed = f"{states:,} states exceed max_states={limit:,}"
        if nbytes is not None:
            reached = f"after {states:,} states the next level would bring memory to"
            passed = (
                f"{reached if states else 'this would take'} {nbytes:,} bytes, "
                f"more than max_states={limit:,} or half of the memory allows"
            )
        super().__init__(f"{where}: {passed}. {remedy}")
        self.states = states
        self.limit = limit
        self.where = where
        self.remedy = remedy
        self.nbytes = nbytes

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error by its arguments, not by its message, for other processes."""
        return _state_limit_error, (self.states, self.limit, self.where, self.remedy, self.nbytes)


def _state_limit_error(
    states: int, limit: int, where: str, remedy: str, nbytes: int | None
) -> StateLimitError:
    return StateLimitError(states, limit, where=where, remedy=remedy, nbytes=nbytes)


class MemoryLimitError(FstgradError):
    """A computation would exceed its memory limit; nearly always predicted before allocation."""


class NotSupportedError(FstgradError):
    """The family has no exact algorithm for this; the message names the alternative."""


class MissingDependencyError(FstgradError, ImportError):
    """An optional package is not installed; the message has the command to install it."""


class RowError(FstgradError):
    """One row of a file cannot be used; the message starts with `file:line`."""


class UnusedArcsWarning(UserWarning):
    """Arcs of a transducer are left out, because their symbols are outside the alphabet."""


class AmbiguousRuleWarning(UserWarning):
    """A rule of a grammar reads a class twice, or symbols in a row, where another may be meant."""


def warn(message: str, category: type[Warning]) -> None:
    """Emit a warning at the caller outside fstgrad."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "fstgrad":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
