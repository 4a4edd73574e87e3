"""A method with its options, which `infer`, `decode` and `nll` choose by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from fstgrad.core.checks import one_of
from fstgrad.core.errors import InvalidInputError

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

    def bind(self, name: str, options: Mapping[str, Any]) -> Callable[..., Result]:
        """Return the function with its options set; `name` appears in error messages.

        Raises InvalidInputError for an option that the method does not have.
        """
        for option in options:
            if option not in self.options:
                raise InvalidInputError(
                    f"method {name!r} has no option {option!r}; it has "
                    f"{', '.join(self.options) or 'none'}"
                )
        return partial(self.function, **self.fixed, **options)


def bound(
    table: Mapping[str, Method[Result]], name: str, options: Mapping[str, Any]
) -> Callable[..., Result]:
    """Return the function of method `name` of a table, with its options set.

    Raises InvalidInputError for an unknown method or option.
    """
    name = one_of("method", name, list(table))
    return table[name].bind(name, options)
