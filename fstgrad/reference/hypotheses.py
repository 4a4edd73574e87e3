"""M = Pi_1(Ybar o U o Y_i), the loss of all hypotheses against one target."""

from collections.abc import Sequence
from functools import reduce

from fstgrad import openfst
from fstgrad.alphabet import Alphabet, SequenceLike
from fstgrad.errors import InfeasibleError
from fstgrad.openfst import Fst
from fstgrad.transducers import sigma_power, string_acceptor

Target = SequenceLike | Fst

EXACT = 1e-300  # a delta below which no two float64 sums differ


def hypothesis_machine(
    transducer: Fst | Sequence[Fst], alphabet: Alphabet, target: Target, length: int
) -> Fst:
    """Return M = Pi_1(Ybar o U o Y_i), without epsilons: y has the weight U(y, y_i).

    M is empty (it has no start state) if no y of this length has a path.

    Parameters
    ----------
    transducer : pynini.Fst or a sequence of factors
        U, composed from the right, so that the product of the factors is never made.
    alphabet : Alphabet
    target : sequence or acceptor
        y_i; an acceptor must have the arc type of U.
    length : int
        l, the length of the hypotheses.

    Raises
    ------
    InfeasibleError
        U rejects the target: it has no path for any hypothesis.
    """
    factors = [transducer] if isinstance(transducer, Fst) else list(transducer)
    arc_type = factors[0].arc_type()
    if not isinstance(target, Fst):
        target = string_acceptor(alphabet, target, arc_type=arc_type)
    matched = reduce(_composed_from_the_right, reversed(factors), target)
    if openfst.is_empty(matched):
        raise InfeasibleError(
            "the transducer rejects the target: no hypothesis has a finite loss against it; let "
            "the transducer write every symbol of the target"
        )
    machine = openfst.compose(sigma_power(alphabet, length, arc_type=arc_type), matched)
    return openfst.remove_epsilons(openfst.project(machine, "input"), delta=EXACT)


def _composed_from_the_right(right: Fst, left: Fst) -> Fst:
    return openfst.compose(left, right)
