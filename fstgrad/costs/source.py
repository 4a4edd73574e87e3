"""Convert a source (an FST, a loss or a grammar) to a transducer."""

from functools import reduce
from typing import Protocol, TypeAlias, runtime_checkable

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import instance
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.costs.transducer import PairTransducer
from fstgrad.losses import Loss, RuleLoss, TransducerLoss
from fstgrad.openfst import Fst, compose, to_arrays


@runtime_checkable
class HasLoss(Protocol):
    """An object with a loss over an alphabet, such as a grammar."""

    def loss(self, alphabet: Alphabet | None = None) -> TransducerLoss:
        """Return the loss over `alphabet`, or over the object's own alphabet if left out."""


Source: TypeAlias = TransducerLoss | HasLoss | Fst


def loss_of(source: Source, alphabet: Alphabet | None = None) -> TransducerLoss:
    """Return the loss of a source: a transducer, a grammar or a loss.

    Raises
    ------
    InvalidInputError
        `source` is none of these, it is a transducer without symbols and `alphabet` is left out, or
        `alphabet` is not that of the loss.
    """
    if alphabet is not None:
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
    if isinstance(source, Fst):
        table = to_arrays(source).input_symbols or ()
        own = alphabet or Alphabet(symbol for label, symbol in table if label != 0)
        return TransducerLoss(source, own)
    if isinstance(source, TransducerLoss):
        if alphabet is not None and alphabet != source.alphabet:
            raise InvalidInputError(
                f"alphabet is {alphabet!r}, but the loss has {source.alphabet!r}; leave it out"
            )
        return source
    if isinstance(source, HasLoss) and not isinstance(source, Loss):  # a wrapper holds its loss
        loss = source.loss(alphabet)
        if isinstance(loss, TransducerLoss):  # a loss automaton has a method of this name, too
            return loss
    raise InvalidInputError(
        f"source is a {type(source).__name__}; give a pynini.Fst, a TransducerLoss or a grammar"
    )


def pair_transducer(source: Source, alphabet: Alphabet | None = None) -> PairTransducer:
    """Return the transducer of a source: a transducer, a grammar or a loss.

    Raises
    ------
    NotSupportedError
        The loss has log=False or smoothing > 0.
    InvalidInputError
        As for `loss_of`.
    FstError
        The transducer has no path.
    """
    loss = loss_of(source, alphabet)
    if not loss.log or loss.smoothing:
        raise NotSupportedError(
            "the loss is not a cost of its transducer; give a loss with log=True and smoothing=0"
        )
    if isinstance(loss, RuleLoss):
        compiled = loss.compiled
        return PairTransducer.from_fst(compiled.fst, loss.alphabet, compiled.names, compiled.sizes)
    return PairTransducer.from_fst(to_arrays(reduce(compose, loss.factors)), loss.alphabet)
