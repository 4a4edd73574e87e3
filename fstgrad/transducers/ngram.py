"""The n-gram counter."""

import numpy as np

from fstgrad.alphabet import Alphabet
from fstgrad.checks import positive_integer
from fstgrad.openfst import ArcType, Fst
from fstgrad.transducers.arcs import EPSILON_LABEL, Arcs, final_at, labels, machine


def ngram_counter(alphabet: Alphabet, order: int, *, arc_type: ArcType = "log64") -> Fst:
    """Return T_n, which maps y to each of its n-grams u with the weight c_u(y).

    c_u(y) is the number of times u occurs in y; in the log semiring the paths of (y, u), one for
    each occurrence, add up to the cost -log c_u(y).  The n-gram similarity is the composition
    U = T_n o T_n^-1, U(y, y') = sum_u c_u(y) c_u(y').

    States 0 .. n, n final.  States 0 and n skip any symbol (a:eps), state s < n copies one (a:a)
    to s + 1; all costs 0.  n + 1 states and (n + 2) |alphabet| arcs (Figure 1 of Cortes et al.
    2018, there for n = 2).

    Parameters
    ----------
    alphabet : Alphabet
    order : int
        The length n >= 1 of an n-gram.
    arc_type : {"log64", "log", "standard"}
        Counting needs a log semiring; "standard" only tells whether u occurs.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> counter = ngram_counter(Alphabet("ab"), 2)
    >>> counter.num_states(), sum(counter.num_arcs(state) for state in counter.states())
    (3, 8)
    """
    positive_integer("order", order)
    label = labels(alphabet)
    state = np.arange(order)[:, None]
    ends = np.array([[0], [order]])
    return machine(
        arc_type,
        final_at(order + 1, order),
        [
            Arcs(ends, label, EPSILON_LABEL, 0.0, ends),
            Arcs(state, label, label, 0.0, state + 1),
        ],
    )
