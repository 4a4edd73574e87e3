"""The data of a fit: pairs of sequences, and losses by name."""

from collections.abc import Callable, Sequence
from typing import Any

from fstgrad import losses
from fstgrad.alphabet import Alphabet
from fstgrad.checks import (
    called,
    instance,
    items,
    one_of,
)
from fstgrad.errors import InvalidInputError
from fstgrad.losses import Loss
from fstgrad.training.sums import XY
from fstgrad.training.templates import as_input

Sequences = Sequence[Sequence[str]]
NAMED: dict[str, Callable[[Alphabet], Loss]] = {
    "edit": losses.EditDistance,
    "hamming": losses.Hamming,
    "ngram": losses.NGram,
    "smith-waterman": losses.SmithWaterman,
}


def paired(X: Sequences, Y: Sequences) -> list[XY]:
    """Return the pairs of inputs and targets.

    Raises
    ------
    InvalidInputError
        If the numbers of inputs and targets differ, there are none, or a target is empty.
    """
    X, Y = items("X", X), [as_input(y) for y in items("Y", Y)]
    if len(X) != len(Y):
        raise InvalidInputError(f"X has {len(X)} inputs and Y {len(Y)} targets; pair them")
    if len(X) == 0:
        raise InvalidInputError("X is empty; give at least one pair")
    for i, y in enumerate(Y):
        if len(y) == 0:
            raise InvalidInputError(f"Y[{i}] is empty; give at least one symbol")
    return [(as_input(x), tuple(y)) for x, y in zip(X, Y, strict=True)]


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
    return items(f"{name}[0]", both[0]), items(f"{name}[1]", both[1])


def made_loss(
    loss: str | Loss | Callable[[Alphabet], Loss] | None, alphabet: Alphabet
) -> Loss | None:
    """Return a loss, given its name, the loss itself, or a function of the alphabet."""
    if isinstance(loss, str):
        return NAMED[one_of("loss", loss, tuple(NAMED))](alphabet)
    if loss is None or isinstance(loss, Loss):
        return loss
    made: Loss = called("loss", loss, alphabet) if callable(loss) else loss
    instance("loss", made, Loss, "a Loss, one of the names, or a function of the alphabet")
    return made
