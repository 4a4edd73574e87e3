"""OpenFst's Python modules, or stand-ins whose error says how to install them.

pynini has wheels only for Linux on x86-64; conda packages exist for macOS too.  Built-in losses,
lattices and models use arrays and do not need it.  Everything else raises MissingDependencyError.
"""

from typing import TYPE_CHECKING, NoReturn

from fstgrad.core.errors import MissingDependencyError

HOW_TO_INSTALL = (
    "this needs OpenFst's Python package pynini, which is not installed: pip install pynini on "
    "Linux x86-64, conda install -c conda-forge pynini elsewhere"
)


def missing() -> MissingDependencyError:
    """Return the error of an operation that needs OpenFst."""
    return MissingDependencyError(HOW_TO_INSTALL)


class _Refusing(type):
    """The metaclass of a class that works in `isinstance` tests and raises in any other use."""

    def __getattr__(cls, name: str) -> NoReturn:
        raise missing()

    def __call__(cls, *_args: object, **_settings: object) -> NoReturn:
        raise missing()


class _Absent(metaclass=_Refusing):
    """A stand-in for a pynini class if pynini is missing; no object is an instance of it."""


class _Missing:
    """A stand-in for a missing module: its classes are `_Absent`, other attributes raise."""

    Fst = SymbolTable = SymbolTableView = _Absent

    def __getattr__(self, name: str) -> NoReturn:
        raise missing()


if TYPE_CHECKING:
    import pynini
    import pywrapfst
else:
    try:
        import pynini
        import pywrapfst
    except ImportError:
        pynini = pywrapfst = _Missing()

__all__ = ["IS_INSTALLED", "missing", "pynini", "pywrapfst"]

IS_INSTALLED = not isinstance(pynini, _Missing)
