"""The errors of fstgrad: one base class, and one class for each kind of failure.

Every message names the argument, the conflicting values and the remedy.  `RenamedAttribute`,
`renamed_arguments` and `warn_renamed` keep old public names working, with a DeprecationWarning.
`UnusedArcsWarning` is a warning, which `warn` emits at the caller.
"""

import functools
import sys
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class FstgradError(Exception):
    """Base of all errors that fstgrad raises deliberately; the message is one line."""

    def __str__(self) -> str:
        """Return the message with its line breaks (as in a printed table) replaced by spaces."""
        return " ".join(super().__str__().split("\n"))


class InvalidInputError(FstgradError, ValueError):
    """An argument has the wrong shape, type, range or content."""


class AlphabetError(InvalidInputError):
    """A symbol or an id is outside the alphabet."""


class FstError(FstgradError):
    """OpenFst cannot perform an operation: arc types or labels conflict, or OpenFst fails."""


class InfeasibleError(FstgradError):
    """No structure has a finite score, so the partition function is zero."""


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


class RenamedAttribute:
    """A descriptor for the old name of an attribute; reading it warns and returns the new one."""

    def __init__(self, new: str) -> None:
        self._new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self._old = name

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            raise AttributeError(self._old)
        warn_renamed(self._old, self._new)
        return getattr(instance, self._new)


def renamed_arguments(
    **new_names: str,
) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
    """Return a decorator that also accepts the old names of keyword arguments, with a warning.

    Parameters
    ----------
    **new_names
        The new name of each old one, as old="new".
    """

    def decorate(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
        @functools.wraps(function)
        def renamed(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
            for old in new_names.keys() & kwargs.keys():
                warn_renamed(old, new_names[old])
                kwargs[new_names[old]] = kwargs.pop(old)
            return function(*args, **kwargs)

        return renamed

    return decorate


def warn_renamed(old: str, new: str) -> None:
    """Emit a DeprecationWarning for a renamed public name, at the caller outside fstgrad."""
    warn(f"{old} was renamed {new}", DeprecationWarning)


def warn(message: str, category: type[Warning]) -> None:
    """Emit a warning at the caller outside fstgrad."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "fstgrad":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
