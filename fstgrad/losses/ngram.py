"""Rational losses: kernels U(y, y_i) = sum_u T(y, u) T(y_i, u) of n-grams u.

Each loss is -log(U + smoothing), or -U with `log=False`.  With smoothing = 0, as in the paper, a
hypothesis that shares nothing with the target has the loss +inf and is left out.

The clipped counts of BLEU, sum_u min(c_u(y), c_u(y_i)), are not a product of two counters.  A sum
over paths counts every pair of occurrences; to clip, a transducer would have to remember for each u
how often it has occurred.  Clipped and unclipped counts agree if no n-gram occurs twice on either
side.
"""

from collections.abc import Sequence

from fstgrad.core.alphabet import Alphabet
from fstgrad.losses import transducers
from fstgrad.losses.transducer import TransducerLoss
from fstgrad.openfst import FstArrays


class _Kernel(TransducerLoss):
    """The loss -log(U + smoothing), or -U, of the kernel U = T o S^-1.

    T is `counter`; S is `other`, by default T.
    """

    _remedy = (
        "the target is too short to have an n-gram of this order: give smoothing > 0, which leaves "
        "no hypothesis out, or shorter n-grams"
    )

    def __init__(
        self,
        counter: FstArrays,
        alphabet: Alphabet,
        smoothing: float,
        log: bool,
        other: FstArrays | None = None,
    ) -> None:
        inverse = (counter if other is None else other).invert()
        super().__init__(
            (counter, inverse), alphabet, semiring="probability", smoothing=smoothing, log=log
        )


class NGram(_Kernel):
    """The n-gram loss: -log(U + smoothing), or -U, with U = sum_u c_u(y) c_u(y_i).

    u runs over the n-grams; c_u(y) is the number of occurrences of u in y.  With smoothing = 0, as
    in the paper, a hypothesis that shares no n-gram with the target has the loss +inf and is left
    out.

    Parameters
    ----------
    alphabet : Alphabet
    order : int
        The length n >= 1 of the n-grams.
    smoothing : float
        Added to U, >= 0; a positive value keeps all hypotheses.
    log : bool
        Whether the loss is -log(U + smoothing), in nats, or -U.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> NGram(Alphabet("ab"), order=2, log=False)("abab", "bab")
    -3.0
    """

    def __init__(
        self, alphabet: Alphabet, order: int = 2, *, smoothing: float = 0.0, log: bool = True
    ) -> None:
        super().__init__(
            transducers.ngram_counter.arrays(alphabet, order), alphabet, smoothing, log
        )
        self.order = order


class NGramSum(_Kernel):
    """Common n-grams of the orders 1 .. N: U = sum_{n=1..N} w_n sum_{|u|=n} c_u(y) c_u(y_i).

    As in BLEU, orders are summed; but counts are not clipped, and there is no brevity penalty.

    Parameters
    ----------
    alphabet : Alphabet
    max_order : int
        N >= 1.
    weights : (N,) float, optional
        w_1 .. w_N, all > 0; by default all 1.
    smoothing, log
        As in `NGram`.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> NGramSum(Alphabet("abc"), max_order=2, log=False)("abc", "abb")  # a, b twice, and ab
    -4.0
    """

    def __init__(
        self,
        alphabet: Alphabet,
        max_order: int = 4,
        weights: Sequence[float] | None = None,
        *,
        smoothing: float = 0.0,
        log: bool = True,
    ) -> None:
        weighted = transducers.ngrams_counter.arrays(alphabet, max_order, weights=weights)
        plain = transducers.ngrams_counter.arrays(alphabet, max_order)
        super().__init__(weighted, alphabet, smoothing, log, plain)


class GappyNGram(_Kernel):
    """Common subsequences of n symbols, weighted by their spread: the string subsequence kernel.

    U = sum_u g_u(y) g_u(y_i), where g_u(y) is the sum of decay^l over all occurrences of u as a
    subsequence of y, and l is the number of positions of y from its first to its last symbol.

    Parameters
    ----------
    alphabet : Alphabet
    order : int
        n = |u| >= 1.
    decay : float
        The decay lambda in (0, 1]; with a power of 2 all sums are exact.
    smoothing, log
        As in `NGram`.

    References
    ----------
    Lodhi et al. (2002), "Text Classification using String Kernels".

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> kernel = GappyNGram(Alphabet("abcrt"), decay=0.5, log=False)
    >>> kernel("cat", "car") == -(0.5**4)  # both have ca, each over two symbols
    True
    """

    def __init__(
        self,
        alphabet: Alphabet,
        order: int = 2,
        decay: float = 0.5,
        *,
        smoothing: float = 0.0,
        log: bool = True,
    ) -> None:
        counter = transducers.gappy_counter.arrays(alphabet, order, decay)
        super().__init__(counter, alphabet, smoothing, log)


class MismatchNGram(_Kernel):
    """Common n-grams up to mismatches: U = sum_u m_u(y) m_u(y_i).

    m_u(y) is the number of occurrences in y of n-grams that differ from u in at most `mismatches`
    symbols.

    Parameters
    ----------
    alphabet : Alphabet
        A small one: the transducer has O(order mismatches k^2) arcs for k symbols.
    order : int
        The length n >= 1 of the n-grams.
    mismatches : int
        0 <= mismatches < order.
    smoothing, log
        As in `NGram`.

    References
    ----------
    Leslie et al. (2004).

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> MismatchNGram(Alphabet("ab"), order=2, log=False)("ab", "bb")  # aa, ab, bb and ab, ba, bb
    -2.0
    """

    def __init__(
        self,
        alphabet: Alphabet,
        order: int = 3,
        mismatches: int = 1,
        *,
        smoothing: float = 0.0,
        log: bool = True,
    ) -> None:
        counter = transducers.mismatch_counter.arrays(alphabet, order, mismatches)
        super().__init__(counter, alphabet, smoothing, log)
