"""Gradients of objectives of strings with respect to the costs of the loss's transducer."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import SequenceLike
from fstgrad.core.checks import FloatArray, Seed, instance, positive_integer
from fstgrad.core.short_repr import short_repr
from fstgrad.core.uninitialized import empty
from fstgrad.costs.pairs import Pairs
from fstgrad.costs.parameter_tying import ParameterTying, Tie
from fstgrad.costs.ranking import Semiring
from fstgrad.costs.transducer import pair_transducer
from fstgrad.losses import TransducerLoss
from fstgrad.strings import StringDistribution


class CostGradient(NamedTuple):
    """A gradient with respect to the costs of classes.

    Attributes
    ----------
    names : (K,) tuple of str, the classes.
    gradient : (K,) float64, nats of the objective per nat of cost.
    standard_error : (K,) float64, the standard error of the gradient, from the samples.
    """

    names: tuple[str, ...]
    gradient: FloatArray
    standard_error: FloatArray

    def __repr__(self) -> str:
        return short_repr(self)


def loss_gradient(
    loss: TransducerLoss, y: SequenceLike, target: SequenceLike, *, tie: Tie = "pair"
) -> dict[str, float]:
    """Return dL(y, target)/dcost for each class of arcs: the number of times its arcs are used.

    For a rational loss, this is the expected number over all alignments, and the derivative is
    exact.  For a tropical loss, it is the number along a best alignment, which is the derivative
    unless several alignments are best.  Classes that are not used are left out.

    Parameters
    ----------
    loss : TransducerLoss
        With log=True and smoothing=0.
    y, target : sequences of symbols
    tie : as in `fit_costs`

    Raises
    ------
    NotSupportedError
        The loss has log=False or smoothing > 0.
    InvalidInputError, AlphabetError, FstError, MemoryLimitError

    Examples
    --------
    >>> import fstgrad as fg
    >>> loss_gradient(fg.EditDistance(fg.Alphabet("ab")), "ab", "bb")
    {'a -> b': 1.0, 'b -> b': 1.0, '(end)': 1.0}
    """
    instance("loss", loss, TransducerLoss, "a TransducerLoss")
    transducer = pair_transducer(loss)
    ties = ParameterTying.of(transducer, tie, "nothing")
    symbols = transducer.alphabet
    ids = symbols.encode(y, name="y"), symbols.encode(target, name="target")
    pair = Pairs.encode(symbols, [ids])
    semiring: Semiring = "tropical" if loss.semiring == "tropical" else "probability"
    count = transducer.best_counts if semiring == "tropical" else transducer.expected_counts
    counts = count(pair, -transducer.cost)[1]
    total = np.bincount(ties.class_of, counts[ties.events], minlength=len(ties.names))
    return {ties.names[k]: float(total[k]) for k in np.flatnonzero(total)}


def softmax_margin_gradient(
    scores: npt.ArrayLike,
    gold: SequenceLike,
    loss: TransducerLoss,
    *,
    tie: Tie = "pair",
    samples: int = 1000,
    rng: Seed = 0,
) -> CostGradient:
    """Return the gradient of the softmax margin with respect to the costs of the loss's transducer.

    F = log sum_y exp(L(y, gold) + scores(y)) - scores(gold), so dF/dcost is the expectation of
    dL(y, gold)/dcost under exp(L + scores) / Z.  Strings are drawn exactly from this distribution,
    and the mean over them is unbiased.

    Parameters
    ----------
    scores, gold : as in `fg.softmax_margin`
    loss : TransducerLoss
        With log=True and smoothing=0.
    tie : as in `fit_costs`
    samples : int
        Number of strings drawn, at least 2.
    rng : Generator, int or None

    Raises
    ------
    NotSupportedError
        The loss has log=False or smoothing > 0.
    InvalidInputError, AlphabetError, InfeasibleError, StateLimitError, FstError, MemoryLimitError

    Examples
    --------
    >>> import fstgrad as fg, numpy as np
    >>> loss = fg.Hamming(fg.Alphabet("ab"))
    >>> found = softmax_margin_gradient(np.zeros((1, 2)), "a", loss, samples=4000)
    >>> k = found.names.index("b -> a")
    >>> bool(abs(found.gradient[k] - np.e / (1 + np.e)) < 4 * found.standard_error[k])
    True
    """
    samples = positive_integer("samples", samples, minimum=2)
    instance("loss", loss, TransducerLoss, "a TransducerLoss")
    target = loss.alphabet.encode(gold, name="gold")
    distribution = StringDistribution(scores, loss.compile(target, len(target)))
    drawn, times = np.unique(distribution.sample(samples, rng), axis=0, return_counts=True)
    transducer = pair_transducer(loss)
    ties = ParameterTying.of(transducer, tie, "nothing")
    count = transducer.best_counts if loss.semiring == "tropical" else transducer.expected_counts
    rows = empty((len(drawn), len(ties.names)))
    for n, y in enumerate(drawn):
        counts = count(Pairs.encode(loss.alphabet, [(y, target)]), -transducer.cost)[1]
        rows[n] = np.bincount(ties.class_of, counts[ties.events], minlength=len(ties.names))
    mean = times @ rows / samples
    variance = times @ (rows - mean) ** 2 / (samples - 1)
    return CostGradient(ties.names, mean, np.sqrt(variance / samples))
