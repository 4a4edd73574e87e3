"""Groups of options: a decorator adds them to a command and hands them over as one record."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def group(name: str, record: type, *declarations: Decorator) -> Decorator:
    """Return a decorator that adds options to a command and hands them over as one `record`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def packed(**values: Any) -> Any:
            fields = {field.name: values.pop(field.name) for field in dataclasses.fields(record)}
            return command(**values, **{name: record(**fields)})

        made: Callable[..., Any] = packed
        for declaration in reversed(declarations):
            made = declaration(made)
        return made

    return decorate
