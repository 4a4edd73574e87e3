"""Load grammars by name or path, and build their losses over an alphabet."""

import difflib
import importlib
import importlib.util
import inspect
import pathlib
import traceback
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import instance, optional, path_name
from fstgrad.core.errors import FstError, InvalidInputError
from fstgrad.losses import RuleLoss, TransducerLoss
from fstgrad.losses.transducers.rules import RuleSet
from fstgrad.openfst import (
    IS_INSTALLED,
    Fst,
    caught_messages,
    is_empty,
    missing,
    with_character_symbols,
    with_symbols,
)

if TYPE_CHECKING:
    from fstgrad.costs import Explanation

NAMES = (
    "articulation",
    "azerty",
    "caseless",
    "code_tokens",
    "codons",
    "damerau",
    "dna",
    "dvorak",
    "fraktur",
    "french",
    "german",
    "ipa",
    "keyboard",
    "measures",
    "melody",
    "morphology",
    "names",
    "number_formats",
    "ocr",
    "phonetic",
    "protein",
    "qwertz",
    "smiles",
    "unicode_forms",
)
_LAYOUTS = ("azerty", "dvorak", "qwertz")  # builders in the module `keyboard`
_FOLDER = pathlib.Path(__file__).parent
MOST_BYTES = 16 * 2**20


class Grammar(ABC):
    """A loss in a file: a Python module that uses pynini, or a file of rules.

    Use `Grammar.load(reference)`.  A subclass implements the abstract methods.

    Attributes
    ----------
    name : the name of the module or file.
    file : its path.
    """

    name: str
    file: pathlib.Path

    @staticmethod
    def load(reference: str) -> "Grammar":
        """Return a grammar: one of `NAMES`, `path.py`, `path.py:builder` or `path.rules`.

        Raises
        ------
        InvalidInputError
            No grammar has this name; the message lists similar names.
        FstError
            The file cannot be imported, has no such builder, or has invalid lines.
        MissingDependencyError
            The grammar is a Python module, and pynini is not installed.
        OSError
            The file cannot be read.
        """
        reference = path_name(reference, "reference")
        if reference.endswith(".rules"):
            return RuleGrammar.read(_no_pipe(pathlib.Path(reference)))
        path, _, builder = reference.partition(".py:")
        if builder or reference.endswith(".py"):
            file = pathlib.Path(path.removesuffix(".py") + ".py")
            return ModuleGrammar.imported(_no_pipe(file), builder or "build")
        if reference not in NAMES:
            raise InvalidInputError(_unknown(reference))
        if (file := _FOLDER / f"{reference}.rules").exists():
            return RuleGrammar.read(file)
        if not IS_INSTALLED:
            raise missing()
        name, builder = ("keyboard", reference) if reference in _LAYOUTS else (reference, "build")
        module = importlib.import_module(f"fstgrad.grammars.{name}")
        return ModuleGrammar(reference, pathlib.Path(module.__file__ or ""), module, builder)

    @property
    @abstractmethod
    def description(self) -> str:
        """The costs and their source; the first line is a summary."""

    @property
    @abstractmethod
    def semiring(self) -> Literal["tropical", "probability"]:
        """The semiring of the weights."""

    @property
    @abstractmethod
    def alphabet(self) -> Alphabet | None:
        """The default alphabet; None if the grammar has none."""

    @property
    @abstractmethod
    def examples(self) -> Sequence[tuple[str, str, float]]:
        """Rows (hypothesis, target, loss); symbols that are words are separated by spaces."""

    @property
    @abstractmethod
    def takes_alphabet(self) -> bool:
        """Whether the grammar can be built over any alphabet."""

    @abstractmethod
    def build(self, alphabet: Alphabet | None = None) -> Fst:
        """Return the transducer with its symbol tables.

        Raises
        ------
        FstError
            The grammar cannot be built; the message has the file, line and rule.
        """

    @property
    def summary(self) -> str:
        """The first line of the description."""
        return self.description.partition("\n")[0]

    def loss(self, alphabet: Alphabet | None = None) -> TransducerLoss:
        """Return the loss over an alphabet; the default is that of the grammar.

        If the grammar has none either, the alphabet consists of the characters of its examples.

        Raises
        ------
        FstError
            As in `build`, or the grammar lacks a symbol of the alphabet.
        InvalidInputError
            There is no alphabet, and there are no examples.
        """
        abc = optional("alphabet", alphabet, Alphabet, "an Alphabet") or self.alphabet
        abc = abc or self._alphabet_of_examples()
        if abc is None:
            raise InvalidInputError(
                f"the grammar {self.name!r} has no ALPHABET; give an alphabet, or define ALPHABET "
                "in its module"
            )
        return TransducerLoss(self.build(abc), abc, semiring=self.semiring)

    def _alphabet_of_examples(self) -> Alphabet | None:
        """Return the alphabet of the examples' characters; None if there are no examples."""
        symbols = {symbol for y, target, _ in self.examples for symbol in y + target}
        return Alphabet(sorted(symbols)) if symbols else None

    def __call__(self, y: str, target: str) -> float:
        """Return the loss of a hypothesis against a target, both written as in `examples`."""
        return self._own_loss(self._symbols("y", y), self._symbols("target", target))

    def explain(self, y: str, target: str, k: int = 3) -> "Explanation":
        """Return the k cheapest alignments, with rules and costs, and what would change them.

        Strings are written as in `examples`.  `print` and notebooks show the explanation.

        Examples
        --------
        >>> print(Grammar.load("keyboard").explain("cst", "cat", k=1))
        0.5  c s t
             c a t
               0.5  substitute s -> a
        what would change it
          without substitute s -> a: 2
        """
        from fstgrad.costs import explain  # a slow import, so only when needed

        return explain(self._own_loss, self._symbols("y", y), self._symbols("target", target), k)

    def symbols(self, text: str) -> list[str]:
        """Return the symbols of a string: characters, or words between white space."""
        return self._symbols("text", text)

    def _symbols(self, name: str, text: str) -> list[str]:
        instance(name, text, str, "a str")
        return list(text) if self._own_loss.alphabet.is_characters else text.split()

    @cached_property
    def _own_loss(self) -> TransducerLoss:
        return self.loss()


@dataclass(frozen=True)
class ModuleGrammar(Grammar):
    """A Python module that builds a loss.

    A builder may be an object with its own `description`, `alphabet` and `examples`, which then
    take the place of those of the module.

    Attributes
    ----------
    name, file : the name and the path of the module.
    module : the module.
    builder : the name of its function that returns the FST.
    """

    name: str
    file: pathlib.Path
    module: ModuleType
    builder: str = "build"

    @classmethod
    def imported(cls, path: pathlib.Path, builder: str) -> "ModuleGrammar":
        """Return the grammar of a Python file, which is executed; see `load` for errors."""
        (path := pathlib.Path(path_name(path))).open().close()  # raise OSError if unreadable
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None:
            raise FstError(f"{path} is not a Python module; give a file NAME.py")
        if not IS_INSTALLED:
            raise missing()
        module = importlib.util.module_from_spec(spec)
        try:
            with caught_messages() as reasons:
                spec.loader.exec_module(module)
        except Exception as error:
            reason = _failure(error, path, reasons)
            raise FstError(f"{path} cannot be imported: {reason}") from error
        if not isinstance(builder, str) or not callable(getattr(module, builder, None)):
            raise FstError(
                f"builder is {builder!r}, which is no function of {path}; a grammar has "
                "build(alphabet), which "
                "returns a pynini.Fst"
            )
        return cls(path.stem, path, module, builder)

    @property
    def description(self) -> str:
        """The description of the builder if it has one, otherwise the docstring of the module."""
        return inspect.cleandoc(self._setting("description", "__doc__") or "")

    @property
    def semiring(self) -> Literal["tropical", "probability"]:
        """SEMIRING of the module; by default "tropical"."""
        return getattr(self.module, "SEMIRING", "tropical")

    @property
    def alphabet(self) -> Alphabet | None:
        """ALPHABET of the module; None if it has none."""
        symbols = self._setting("alphabet", "ALPHABET")
        return None if symbols is None else Alphabet(symbols)

    @property
    def examples(self) -> Sequence[tuple[str, str, float]]:
        """EXAMPLES of the module, rows (hypothesis, target, loss)."""
        rows: Sequence[tuple[str, str, float]] | None = self._setting("examples", "EXAMPLES")
        return () if rows is None else rows

    @property
    def takes_alphabet(self) -> bool:
        """Whether the builder has a parameter for the alphabet."""
        return bool(inspect.signature(getattr(self.module, self.builder)).parameters)

    def build(self, alphabet: Alphabet | None = None) -> Fst:
        """Return the transducer with its symbol tables.

        Raises
        ------
        FstError
            The builder fails, or does not return an FST, or returns an empty one.
        """
        optional("alphabet", alphabet, Alphabet, "an Alphabet")
        arguments = (alphabet,) if self.takes_alphabet else ()
        try:
            with caught_messages() as reasons:
                fst = getattr(self.module, self.builder)(*arguments)
        except Exception as error:
            reason = _failure(error, self.file, reasons)
            raise FstError(f"{self._builder_text} failed: {reason}") from error
        if not isinstance(fst, Fst):
            raise FstError(
                f"{self._builder_text} returned a {type(fst).__name__}; return a pynini.Fst"
            )
        if is_empty(fst):
            raise FstError(
                f"{self._builder_text} returned an empty FST; it accepts no pair of strings"
            )
        return with_character_symbols(fst)

    def _setting(self, of_builder: str, of_module: str) -> Any:
        """Return an attribute of the builder if it has it, otherwise of the module, or None."""
        default = getattr(self.module, of_module, None)
        return getattr(getattr(self.module, self.builder, None), of_builder, default)

    @property
    def _builder_text(self) -> str:
        return f"{self.builder}() of the grammar {self.name!r}"


@dataclass(frozen=True)
class RuleGrammar(Grammar):
    """A file of rules, which is not executed.

    Attributes
    ----------
    name : the name of the file without its ending.
    file : its path.
    rules : RuleSet, the content of the file.
    """

    name: str
    file: pathlib.Path
    rules: RuleSet

    @classmethod
    def read(cls, path: pathlib.Path) -> "RuleGrammar":
        """Return the grammar of a file of rules.

        Raises
        ------
        FstError
            Lines are invalid (all are listed), or the file is not UTF-8 text or above 16 MiB.
        OSError
            The file cannot be read.
        """
        with (path := pathlib.Path(path_name(path))).open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise FstError(f"{path} has more than {MOST_BYTES:,} bytes; a file of rules is small")
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise FstError(f"{path} is not UTF-8 text ({error.reason})") from error
        if "\0" in text:
            raise FstError(f"{path} has a NUL character, as UTF-16 has; convert it to UTF-8")
        return cls(path.stem, path, RuleSet.parse(text, str(path)))

    @property
    def description(self) -> str:
        """The comments at the top of the file."""
        return self.rules.description

    @property
    def semiring(self) -> Literal["tropical", "probability"]:
        """The string "tropical": the loss is the cost of the cheapest alignment."""
        return "tropical"

    @property
    def alphabet(self) -> Alphabet | None:
        """The alphabet of the file."""
        return self.rules.alphabet

    @property
    def examples(self) -> Sequence[tuple[str, str, float]]:
        """Rows (hypothesis, target, loss)."""
        return [(row.hypothesis, row.target, row.loss) for row in self.rules.examples]

    @property
    def takes_alphabet(self) -> bool:
        """True: rules can be compiled over any alphabet."""
        return True

    def build(self, alphabet: Alphabet | None = None) -> Fst:
        """Return the transducer with its symbol tables."""
        loss = self.loss(alphabet)
        return with_symbols(loss.transducer, loss.alphabet)

    def loss(self, alphabet: Alphabet | None = None) -> RuleLoss:
        """Return the loss over an alphabet; the default is that of the file."""
        return RuleLoss(self.rules, alphabet)


def _no_pipe(file: pathlib.Path) -> pathlib.Path:
    """Return a file; raise InvalidInputError if it is a pipe, which cannot be read twice."""
    if file.is_fifo():
        raise InvalidInputError(f"{file} is a pipe, but a grammar is read twice; give a file")
    return file


def _unknown(reference: str) -> str:
    """Return the message about an unknown grammar, with similar names or all names."""
    files = [reference + ending for ending in (".rules", ".py")]
    near = [file for file in files if pathlib.Path(file).exists()]
    near = near or difflib.get_close_matches(reference, NAMES)
    hint = f"did you mean {', '.join(near)}?" if near else f"choose one of {', '.join(NAMES)}."
    return f"no grammar {reference!r}; {hint} A file ends in .py or .rules"


def _failure(error: Exception, file: pathlib.Path, reasons: Sequence[str]) -> str:
    """Return an error's text, with the line of the file that raised it and OpenFst's reasons."""
    if isinstance(error, SyntaxError) and _is_same(error.filename, file):
        return f"{file}:{error.lineno}: {type(error).__name__}: {error.msg}"
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame for frame in frames if _is_same(frame.filename, file)]
    if lines:
        text = f"{file}:{lines[-1].lineno}: {text}"
    return f"{text} ({'; '.join(reasons)})" if reasons else text


def _is_same(name: str | None, file: pathlib.Path) -> bool:
    return name is not None and pathlib.Path(name).resolve() == file.resolve()
