"""Rational losses: kernels of n-grams."""

from fstgrad import transducers
from fstgrad.alphabet import Alphabet
from fstgrad.losses.base import TransducerLoss
from fstgrad.openfst import read


class NGram(TransducerLoss):
    """The n-gram loss: -log(U + smoothing), or -U, with U = sum_u c_u(y) c_u(y_i).

    u runs over the n-grams and c_u counts occurrences.  With smoothing = 0, as in the paper, a
    hypothesis that shares no n-gram with the target has the loss +inf and is left out.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> NGram(Alphabet("ab"), order=2, log=False)("abab", "bab")
    -3.0
    """

    def __init__(
        self, alphabet: Alphabet, order: int = 2, *, smoothing: float = 0.0, log: bool = True
    ) -> None:
        counter = transducers.ngram_counter(alphabet, order)
        inverted = read(counter).invert()
        super().__init__(
            (counter, inverted), alphabet, semiring="probability", smoothing=smoothing, log=log
        )
        self.order = order
