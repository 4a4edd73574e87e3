"""The errors of fstgrad: one base class, one class for each thing that can go wrong.

Every message names the argument, the values that clash and what to do about it.
Old public names warn: `RenamedAttribute`, `renamed_arguments`, `warn_renamed`.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class FstgradError(Exception):
    """Base of every error that fstgrad raises on purpose; its message is one line."""

    def __str__(self) -> str:
        """Return the message; values of several lines, such as tables, are put on one."""
        return " ".join(super().__str__().split("\n"))


class InvalidInputError(FstgradError, ValueError):
    """An argument has the wrong shape, type, range or content."""


class AlphabetError(InvalidInputError):
    """A symbol or an id is outside the alphabet."""


class FstError(FstgradError):
    """OpenFst cannot perform an operation: arc types or labels clash, or it failed."""


class InfeasibleError(FstgradError):
    """No structure has a finite score: the partition function is zero."""


class StateLimitError(FstgradError):
    """A determinization would exceed its limit of states, or the memory limit that follows from it.

    Parameters
    ----------
    states : int
        Number of states that were reached or predicted.
    limit : int
        The limit that was passed, `max_states`.
    where : str
        Which computation stopped, with its sizes.
    remedy : str
        What the caller can do instead.
    nbytes : int, optional
        Where it is the memory that would be passed: the bytes that were predicted, none of which
        were allocated.
    """

    def __init__(
        self, states: int, limit: int, *, where: str, remedy: str, nbytes: int | None = None
    ) -> None:
        passed = f"{states:,} states pass max_states={limit:,}"
        if nbytes is not None:
            reached = f"after {states:,} states the next level would bring memory to"
            passed = (
                f"{reached if states else 'this would take'} {nbytes:,} bytes, "
                f"more than goes with max_states={limit:,} or than half of the memory"
            )
        super().__init__(f"{where}: {passed}. {remedy}")
        self.states = states
        self.limit = limit
        self.where = where
        self.remedy = remedy
        self.nbytes = nbytes

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle an error by its arguments, not by its message, for other processes."""
        return _state_limit_error, (self.states, self.limit, self.where, self.remedy, self.nbytes)


def _state_limit_error(
    states: int, limit: int, where: str, remedy: str, nbytes: int | None
) -> StateLimitError:
    return StateLimitError(states, limit, where=where, remedy=remedy, nbytes=nbytes)


class MemoryLimitError(FstgradError):
    """A computation would need more memory than it is allowed; predicted before allocating."""


class NotSupportedError(FstgradError):
    """The family cannot do this exactly; the message names the alternative."""


class MissingDependencyError(FstgradError, ImportError):
    """An optional package is not installed; the message gives the command that installs it."""


class RowError(FstgradError):
    """One row of a file cannot be used; the message starts with `file:line`."""


class RenamedAttribute:
    """The old name of an attribute: reading it warns and gives the new one."""

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
    """Return a decorator under which keyword arguments go by old names too, with a warning.

    new_names : old="new", the new name of each old one.
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
    """Warn the caller of the caller that a public name has changed."""
    warnings.warn(f"{old} was renamed {new}", DeprecationWarning, stacklevel=3)
