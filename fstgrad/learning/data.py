"""The data of a fit: pairs of sequences, and losses by name."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from fstgrad.core.alphabet import Alphabet, WordAlphabet
from fstgrad.core.checks import call_function, instance, is_integer, one_of
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import batch, items, paired_batches
from fstgrad.learning.outcomes import XY
from fstgrad.learning.templates import Tagged, as_input, symbols_of
from fstgrad.losses import Loss
from fstgrad.losses.names import LOSS_NAMES, NEED_ARGUMENTS

Sequences = Sequence[Sequence[str]]
_MOST_IDS = 2**16


def alphabet_of_ids(Y: Sequence[Any]) -> Alphabet | None:
    """Return the symbols "0", "1", ... of targets that are ids; None if they are symbols.

    Raises
    ------
    InvalidInputError
        An id is negative, or beyond the limit of 65,536.
    """
    ids = [number for y in Y if is_ids(y) for number in (min(y), max(y))]
    if not ids:
        return None
    if min(ids) < 0 or max(ids) >= _MOST_IDS:
        wrong = min(ids) if min(ids) < 0 else max(ids)
        raise InvalidInputError(
            f"Y has the label {wrong}; integer labels are ids from 0 to {_MOST_IDS - 1}: give str "
            "labels"
        )
    return Alphabet([str(i) for i in range(max(ids) + 1)])


def is_ids(y: Any) -> bool:
    """Return whether a target is integers, at least one: ids of symbols."""
    if isinstance(y, str | Tagged) or not isinstance(y, Collection) or getattr(y, "ndim", 1) != 1:
        return False
    return len(y) > 0 and all(map(is_integer, y))


def paired(
    X: Sequences, Y: Sequences, alphabet: Alphabet | None = None, *, empty: bool = False
) -> list[XY]:
    """Return the pairs of inputs and targets; ids in targets become symbols of the alphabet.

    alphabet : of the targets, if known.  empty : whether a target may be empty.

    Raises
    ------
    InvalidInputError
        If the numbers of inputs and targets differ, there are none, a target is empty and must not
        be, or a target is a str although a symbol has several characters.
    """
    X, Y = paired_batches(X=X, Y=Y)
    of_lists = [s for y in Y if isinstance(y, list | tuple) for s in y if isinstance(s, str)]
    check_words("Y", Y, [*(alphabet or ()), *of_lists])
    if alphabet is not None:
        for i, y in enumerate(Y):
            Y[i] = alphabet.decode(alphabet.encode(y, name=f"Y[{i}]")) if is_ids(y) else y
    Y = [as_input(y, f"Y[{i}]") for i, y in enumerate(Y)]
    if len(X) != len(Y):
        raise InvalidInputError(f"X has {len(X)} inputs and Y {len(Y)} targets; pair them")
    if len(X) == 0:
        raise InvalidInputError("X is empty; give at least one pair")
    for i, y in enumerate(Y):
        if len(y) == 0 and not empty:
            raise InvalidInputError(f"Y[{i}] is empty; give at least one symbol")
    inputs = [as_input(x, f"X[{i}]") for i, x in enumerate(X)]
    return [(x, tuple(y)) for x, y in zip(inputs, Y, strict=True)]


def two_sequences(name: str, given: Any) -> tuple[list[Any], list[Any]]:
    """Return the inputs and the targets of (X, Y), each read once.

    Raises
    ------
    InvalidInputError
        If these are not two sequences.
    """
    both = items(name, given)
    if len(both) != 2:
        raise InvalidInputError(f"{name} is (X, Y); give two sequences, not {len(both)}")
    X, Y = paired_batches(**{f"{name}[{i}]": side for i, side in enumerate(both)})
    return X, Y


def as_inputs(X: Sequences, model: Any, name: str = "X[{}]") -> list[Any]:
    """Return the inputs of a model in the form that the features need; see `as_input`.

    name : the name of an input in errors, with {} for its number.
    """
    X = batch("X", X)
    features, latent = (getattr(model, name, None) for name in ("features_", "latent_"))
    known = getattr(getattr(features, "vocabulary", None), "symbols", ())
    slots = set() if latent is None else set(latent.padded(()))
    known = [symbol for symbol in known if symbol not in slots]
    check_words("X", X, known)
    inputs = [as_input(x, name.format(i)) for i, x in enumerate(X)]
    if known and all(len(symbol) == 1 for symbol in known):
        _check_characters(inputs, frozenset(known))
    return inputs


def _check_characters(inputs: Sequence[Any], known: frozenset[str]) -> None:
    """Raise InvalidInputError if an input is words that are spelled with the known characters.

    A single unknown symbol of several characters is no word.
    """
    for i, x in enumerate(inputs):
        symbols = symbols_of(x)
        words = [s for s in symbols if len(s) > 1 and known.issuperset(s)]
        if words and 2 * len(words) >= len(symbols):
            raise InvalidInputError(
                f"X[{i}] has the word {words[0]!r}, but the model has characters; give a str, or a "
                "list of characters"
            )


def check_words(name: str, sequences: Sequence[Any], symbols: Iterable[str]) -> None:
    """Raise InvalidInputError if a sequence is a str, but a symbol has several characters."""
    word = next((symbol for symbol in symbols if len(symbol) > 1), None)
    if word is None:
        return
    for i, sequence in enumerate(sequences):
        if isinstance(sequence, str):
            raise InvalidInputError(
                f"{name}[{i}] is the str {sequence[:40]!r}, but the model has words such as "
                f"{word!r}; give a list of symbols, {name}[{i}].split()"
            )


def check_loss(loss: Loss | None, Y: Sequences) -> None:
    """Raise InvalidInputError if a loss counts words, but a target is a str."""
    if loss is None or not isinstance(loss.alphabet, WordAlphabet):
        return
    for i, y in enumerate(Y):
        if isinstance(y, str):
            raise InvalidInputError(
                f"loss is a word error rate, but Y[{i}] is the str {y[:40]!r}; give a list of "
                f"words, Y[{i}].split(), or use CharacterErrorRate"
            )


def made_loss(
    loss: str | Loss | Callable[[Alphabet], Loss] | None, alphabet: Alphabet
) -> Loss | None:
    """Return a loss, given its name, the loss itself, or a function of the alphabet."""
    if isinstance(loss, str):
        names = tuple(name for name in LOSS_NAMES if name not in NEED_ARGUMENTS)
        return LOSS_NAMES[one_of("loss", loss, names)](alphabet)
    if loss is None or isinstance(loss, Loss):
        return loss
    made: Loss = call_function("loss", loss, alphabet) if callable(loss) else loss
    instance("loss", made, Loss, "a Loss, one of the names, or a function of the alphabet")
    return made
