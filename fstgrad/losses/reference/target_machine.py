"""Build M = Pi_1(Ybar o U o Y_i), the loss of all hypotheses against one target."""

from collections.abc import Sequence
from functools import reduce

from fstgrad import openfst
from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.errors import InfeasibleError, MemoryLimitError
from fstgrad.losses.transducers import sigma_power, string_acceptor
from fstgrad.openfst import Fst

Target = SequenceLike | Fst

HYPOTHESIS_MEMORY = 2 * 2**30  # bytes that the arcs and states may use
ARC_BYTES, STATE_BYTES = 32, 200  # of an arc and a state, with the copy that an operation makes
EXACT = 1e-300  # a delta so small that OpenFst rounds nothing


def hypothesis_machine(
    transducer: Fst | Sequence[Fst], alphabet: Alphabet, target: Target, length: int
) -> Fst:
    """Return M = Pi_1(Ybar o U o Y_i) without epsilon arcs; y has the weight U(y, y_i).

    If no y of this length has a path, M is empty: it has no start state.

    Parameters
    ----------
    transducer : pynini.Fst or a sequence of factors
        U.  Factors are composed from the right, so that their product is never built.
    alphabet : Alphabet
    target : sequence or acceptor
        y_i; an acceptor must have the arc type of U.
    length : int
        The length l >= 1 of the hypotheses.

    Raises
    ------
    InfeasibleError
        U rejects the target: it has no path for any hypothesis.
    MemoryLimitError
        M could need more than 2 GiB.  This is checked first, because OpenFst ends the process if
        memory runs out.
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
    _check_size(matched, len(alphabet), length)
    machine = openfst.compose(sigma_power(alphabet, length, arc_type=arc_type), matched)
    return openfst.remove_epsilons(openfst.project(machine, "input"), delta=EXACT)


def _check_size(matched: Fst, n: int, length: int) -> None:
    """Raise MemoryLimitError unless Ybar o `matched` fits in 2 GiB, also without epsilon arcs.

    After their removal, each of the S states of `matched` has the arcs of all states that its
    epsilon arcs reach: up to n S (S + 1) / 2 arcs in total.
    """
    arrays = openfst.to_arrays(matched)
    arcs = arrays.num_arcs
    if (arrays.ilabel == 0).any():
        arcs = max(arcs, n * arrays.num_states * (arrays.num_states + 1) // 2)
    need = (length + 1) * (arcs * ARC_BYTES + arrays.num_states * STATE_BYTES)
    if need > HYPOTHESIS_MEMORY:
        raise MemoryLimitError(
            f"engine='openfst' makes up to {(length + 1) * arcs:,} arcs for this target, "
            f"{need / 2**30:.1f} GiB (at most {HYPOTHESIS_MEMORY / 2**30:g}); use engine='layered'"
        )


def _composed_from_the_right(right: Fst, left: Fst) -> Fst:
    return openfst.compose(left, right)
