"""The base families by name, and their description in files."""

from typing import Any

from fstgrad.core.errors import InvalidInputError
from fstgrad.grm.base import Base, Bounds, Method
from fstgrad.grm.continuous import Exponential, Gaussian
from fstgrad.grm.count_families import (
    CountBase,
    Hurdle,
    NegativeBinomial,
    Poisson,
)  # fmt: skip
from fstgrad.grm.finite_families import Bernoulli, FiniteCounts

__all__ = [
    "BASES", "Base", "Bernoulli", "Bounds", "CountBase", "Exponential", "FiniteCounts", "Gaussian",
    "Hurdle", "Method", "NegativeBinomial", "Poisson", "from_description", "resolve",
    "to_description",
]  # fmt: skip

BASES: dict[str, Base] = {
    base.name: base
    for base in (
        Poisson(), Exponential(), Gaussian(), NegativeBinomial(), Hurdle(Poisson()),
        Hurdle(NegativeBinomial()), Bernoulli(),
    )
}  # fmt: skip
CLASSES: dict[str, Any] = {
    kind.__name__: kind
    for kind in (Poisson, Exponential, Gaussian, NegativeBinomial, Hurdle, Bernoulli, FiniteCounts)
}


def resolve(base: "str | Base") -> Base:
    """Return the family with the name `base`, or `base` if it is a family.

    Raises InvalidInputError for anything else.
    """
    if isinstance(base, Base):
        return base
    if not isinstance(base, str) or base not in BASES:
        raise InvalidInputError(
            f"base is {base!r}; choose one of {', '.join(BASES)} or give a family such as "
            "FiniteCounts(log_measure)"
        )
    return BASES[base]


def to_description(base: Base) -> dict[str, Any]:
    """Return {"class": name, "arguments": dict} of a family, in types of JSON."""
    arguments = {
        name: to_description(value) if isinstance(value, Base) else value
        for name, value in base.describe().items()
    }
    return {"class": type(base).__name__, "arguments": arguments}


def from_description(description: Any) -> Base:
    """Return the family that `to_description` described; raise InvalidInputError otherwise."""
    if not isinstance(description, dict) or set(description) != {"class", "arguments"}:
        raise InvalidInputError("a base family is not described by its class and its arguments")
    kind, given = description["class"], description["arguments"]
    if kind not in CLASSES or not isinstance(given, dict):
        raise InvalidInputError(f"{str(kind)[:40]!r} is not a base family")
    arguments = {
        name: from_description(value) if isinstance(value, dict) else value
        for name, value in given.items()
    }
    try:
        family: Base = CLASSES[kind](**arguments)
    except TypeError as error:
        raise InvalidInputError(f"{kind} does not have these arguments: {error}") from error
    return family
