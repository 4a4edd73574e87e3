"""Grammars found by name or by path, built over an alphabet, tested by their examples."""

import difflib
import importlib
import importlib.util
import inspect
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

from fstgrad.alphabet import Alphabet
from fstgrad.errors import FstError, InvalidInputError
from fstgrad.losses import TransducerLoss
from fstgrad.openfst import Fst, is_empty, with_character_symbols

NAMES = (
    "caseless",
    "damerau",
    "dna",
    "keyboard",
    "number_formats",
    "ocr",
    "phonetic",
    "protein",
)


@dataclass(frozen=True)
class Grammar:
    """A module that builds a loss.

    Attributes
    ----------
    name : the name of the module.
    module : the module.
    builder : the name of its public builder.
    """

    name: str
    module: ModuleType
    builder: str = "build"

    @classmethod
    def load(cls, reference: str) -> "Grammar":
        """Return a grammar: one of `NAMES`, or a file `path.py` or `path.py:builder`.

        Raises
        ------
        InvalidInputError
            No grammar has this name; the near names are listed.
        FstError
            The file cannot be imported, or has no such builder.
        OSError
            The file cannot be read.
        """
        path, _, builder = reference.partition(".py:")
        if builder or reference.endswith(".py"):
            file = pathlib.Path(path.removesuffix(".py") + ".py")
            return cls._from_file(file, builder or "build")
        if reference not in NAMES:
            near = difflib.get_close_matches(reference, NAMES) or NAMES
            raise InvalidInputError(
                f"no grammar {reference!r}; did you mean {', '.join(near)}? A file ends in .py"
            )
        return cls(reference, importlib.import_module(f"fstgrad.grammars.{reference}"))

    @classmethod
    def _from_file(cls, path: pathlib.Path, builder: str) -> "Grammar":
        path.open().close()  # an OSError of its own
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise FstError(f"{path} is no Python module; give a file NAME.py")
        module = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            raise FstError(f"{path} cannot be imported: {_said(error)}") from error
        if not callable(getattr(module, builder, None)):
            raise FstError(
                f"{path} has no function {builder!r}; a grammar has build(alphabet=None), which "
                "returns a pynini.Fst"
            )
        return cls(path.stem, module, builder)

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (self.module.__doc__ or "").strip().partition("\n")[0]

    @property
    def description(self) -> str:
        """The docstring."""
        return inspect.cleandoc(self.module.__doc__ or "")

    @property
    def semiring(self) -> Literal["tropical", "probability"]:
        """What the weights mean."""
        semiring: Literal["tropical", "probability"]
        semiring = getattr(self.module, "SEMIRING", "tropical")
        return semiring

    @property
    def alphabet(self) -> Alphabet | None:
        """The alphabet that the grammar is made for; None if it does not say."""
        symbols = getattr(self.module, "ALPHABET", None)
        return None if symbols is None else Alphabet(symbols)

    @property
    def examples(self) -> Sequence[tuple[str, str, float]]:
        """Rows (hypothesis, target, loss); strings of words where symbols are words."""
        rows: Sequence[tuple[str, str, float]] = getattr(self.module, "EXAMPLES", ())
        return rows

    @property
    def takes_alphabet(self) -> bool:
        """Whether the builder is given the alphabet."""
        return bool(inspect.signature(getattr(self.module, self.builder)).parameters)

    def build(self, alphabet: Alphabet | None = None) -> Fst:
        """Return the transducer with its symbol tables.

        Raises
        ------
        FstError
            The builder fails, or returns no FST, or an empty one.
        """
        builder: Any = getattr(self.module, self.builder)
        arguments = (alphabet,) if self.takes_alphabet else ()
        try:
            fst = builder(*arguments)
        except Exception as error:
            raise FstError(f"{self._called} failed: {_said(error)}") from error
        if not isinstance(fst, Fst):
            raise FstError(f"{self._called} returned a {type(fst).__name__}; return a pynini.Fst")
        if is_empty(fst):
            raise FstError(f"{self._called} returned an empty FST; it accepts no pair of strings")
        return with_character_symbols(fst)

    def loss(self, alphabet: Alphabet | None = None) -> TransducerLoss:
        """Return the loss over an alphabet; over that of the grammar if left out.

        Raises
        ------
        FstError
            As in `build`, or the grammar has no symbol of that name.
        InvalidInputError
            Neither the caller nor the grammar names an alphabet.
        """
        abc = alphabet or self.alphabet
        if abc is None:
            raise InvalidInputError(
                f"the grammar {self.name!r} has no ALPHABET; name the symbols: an alphabet here, "
                "or ALPHABET in its module"
            )
        return TransducerLoss(self.build(abc), abc, semiring=self.semiring)

    @property
    def _called(self) -> str:
        return f"{self.builder}() of the grammar {self.name!r}"


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
