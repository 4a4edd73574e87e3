"""OpenFst's Python modules, or stand-ins that say how to install them.

pynini has wheels for Linux on x86-64 alone, and conda packages for macOS as well.  Built-in losses,
lattices and models are made of arrays and need neither; what does need OpenFst raises one error.
"""

from typing import TYPE_CHECKING, NoReturn

from fstgrad.errors import MissingDependencyError

HOW_TO_INSTALL = (
    "this needs OpenFst's Python package pynini, which is not installed: pip install pynini on "
    "Linux x86-64, conda install -c conda-forge pynini elsewhere"
)


def missing() -> MissingDependencyError:
    """Return the error for operations that need OpenFst."""
    return MissingDependencyError(HOW_TO_INSTALL)


class _Refusing(type):
    """The type of classes that cannot be used, only tested against."""

    def __getattr__(cls, name: str) -> NoReturn:
        raise missing()

    def __call__(cls, *_args: object, **_settings: object) -> NoReturn:
        raise missing()


class _Absent(metaclass=_Refusing):
    """A stand-in for a pynini class if pynini is missing: nothing is an instance of it."""


class _Missing:
    """A module that is not installed: its classes are absent, its functions raise."""

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
