"""A method with its options, which `infer`, `decode` and `nll` choose by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, TypeVar

from fstgrad.checks import one_of
from fstgrad.errors import InvalidInputError, warn_renamed

Result = TypeVar("Result")

RENAMED = {
    name.replace("-", "_"): name
    for name in ("mean-field", "max-product", "swendsen-wang", "graph-cut")
}  # old names of methods and samplers, which work for one more release


def current_name(name: str) -> str:
    """Return the name of a method or sampler; an old one becomes the new one, with a warning."""
    if not isinstance(name, str) or name not in RENAMED:
        return name
    warn_renamed(name, RENAMED[name])
    return RENAMED[name]


@dataclass(frozen=True)
class Method(Generic[Result]):
    """A function of a model whose keyword-only arguments are the method's options.

    Attributes
    ----------
    function : callable
    fixed : options whose values the name of the method determines
    renamed : old names of options, which work for one more release, with their new names
    """

    function: Callable[..., Result]
    fixed: Mapping[str, object] = field(default_factory=dict)
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def options(self) -> list[str]:
        """The names of the options that a caller can set."""
        keywords = self.function.__kwdefaults__ or {}
        return [name for name in keywords if name not in self.fixed]

    def bind(self, name: str, options: Mapping[str, Any]) -> Callable[..., Result]:
        """Return the function with its options set; `name` appears in error messages.

        Raises InvalidInputError for an option that the method does not have.
        """
        options = self._current(options)
        for option in options:
            if option not in self.options:
                raise InvalidInputError(
                    f"method {name!r} has no option {option!r}; it has "
                    f"{', '.join(self.options) or 'none'}"
                )
        return partial(self.function, **self.fixed, **options)

    def _current(self, options: Mapping[str, Any]) -> dict[str, Any]:
        for old in self.renamed.keys() & options.keys():
            warn_renamed(old, self.renamed[old])
        return {self.renamed.get(name, name): value for name, value in options.items()}


def bound(
    table: Mapping[str, Method[Result]], name: str, options: Mapping[str, Any]
) -> Callable[..., Result]:
    """Return the function of method `name`, or of its old name, of a table, with its options set.

    Raises InvalidInputError for an unknown method or option.
    """
    name = one_of("method", current_name(name), list(table))
    return table[name].bind(name, options)
