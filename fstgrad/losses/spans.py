"""SpanHamming: the spans of a gold sequence of tags that are missed, and those that are wrong."""

from collections.abc import Sequence

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray, IntArray, positive_number
from fstgrad.core.errors import NotSupportedError
from fstgrad.core.tag_schemes import TagScheme
from fstgrad.losses.automata.machine import Arcs, TargetMachine, symbol_classes
from fstgrad.losses.automata.reduction import semiring_weights
from fstgrad.losses.automata.semiring import TROPICAL
from fstgrad.losses.base import MachineLoss
from fstgrad.losses.evaluation import Target
from fstgrad.losses.transducers.builder import ArcGroup, machine
from fstgrad.openfst import Fst, FstArrays


class SpanHamming(MachineLoss):
    """Spans of the target that y misses, and spans of y that are not in the target.

    L(y, y_i) = missed_cost |S(y_i) - S(y)| + wrong_cost |S(y) - S(y_i)|, where S(y) are the spans
    (type, start, stop) that the tags y write (see `fg.TagScheme`); +inf if the lengths differ.
    F1 of a corpus is a ratio of such counts over all sentences, so that its expectation is no sum
    over sentences, and has no exact gradient.  The expectation of this loss, and its gradient, are
    exact.

    Parameters
    ----------
    alphabet : Alphabet
        n tags, such as "O", "B-PER", "I-PER".
    scheme : {"BIO", "BIOES", "BILOU", "BMES"}
    missed_cost, wrong_cost : float
        Costs in nats, >= 0, of a span of the target, or of y, that the other one has not.

    Raises
    ------
    InvalidInputError
        A cost is negative or not finite, or a tag has no letter of the scheme.

    Notes
    -----
    After t tags, the machine knows the open span of y and whether it equals that of the target so
    far: at most K + 2 states a position for K types.  The target is one sequence: an acceptor
    raises NotSupportedError.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> loss = SpanHamming(Alphabet(["O", "B-PER", "I-PER"]))
    >>> loss(["B-PER", "O", "B-PER"], ["B-PER", "I-PER", "B-PER"])  # one missed, one wrong
    2.0
    """

    def __init__(
        self,
        alphabet: Alphabet,
        scheme: str = "BIO",
        missed_cost: float = 1.0,
        wrong_cost: float = 1.0,
    ) -> None:
        super().__init__(alphabet)
        self.scheme = TagScheme(alphabet, scheme)
        self.missed_cost = positive_number("missed_cost", missed_cost, allow_zero=True)
        self.wrong_cost = positive_number("wrong_cost", wrong_cost, allow_zero=True)
        self._continues, self._after = self.scheme.steps()

    def _machine(self, target: Target) -> TargetMachine:
        if isinstance(target, Fst):
            raise NotSupportedError("SpanHamming takes one target string, not an acceptor")
        ids = self.alphabet.encode(target, name="target").tolist()
        goes_on, gold = [], 0  # whether a tag of the target continues its open span
        for tag in ids:
            goes_on.append(bool(self._continues[gold, tag]))
            gold = int(self._after[gold, tag])
        label, place = np.arange(1, len(self.alphabet) + 1), [0]
        groups = [ArcGroup(label[:0], label[:0], 0, 0.0, label[:0])]  # for an empty target
        states, first = np.array([0]), 0  # the states after t tags are first, first + 1, ...
        for t, tag in enumerate(ids):
            ahead = [*goes_on[t : t + 2], False]
            cost, after = self._arcs(states, ids[t - 1] if t else tag, tag, ahead)
            reached, number = np.unique(after, return_inverse=True)
            source, following = first + np.arange(len(states)), first + len(states)
            nextstate = following + number.reshape(after.shape)
            groups.append(ArcGroup(source[:, None], label, 0, cost, nextstate))
            states, first = reached, following
            place += [t + 1] * len(states)
        final = np.full(len(place), np.inf)
        final[first:] = 0.0
        where = np.repeat(np.array(place), 2).reshape(-1, 1, 2)
        return _machine_of(machine("log64", final, groups), len(self.alphabet), where)

    def _arcs(
        self, states: IntArray, previous: int, tag: int, goes_on: Sequence[bool]
    ) -> tuple[FloatArray, IntArray]:
        """Return the costs (S, n) and the next states of all tags of y in the states (S,).

        States are those of `TagScheme.steps`; the last one, K + 1, is an open span of y that equals
        that of the target so far.  `previous` and `tag` are tags of the target; `goes_on` says
        whether `tag`, and the one after it, continue an open span.
        """
        last, type_of = len(self.scheme.types) + 1, self.scheme.type_of
        equal = (states == last)[:, None]
        open_span = np.where(states == last, type_of[previous] + 1, states)
        y_goes_on, y_after = self._continues[open_span], self._after[open_span]
        y_begins = ~y_goes_on & (type_of >= 0)
        z_begins = not goes_on[0] and type_of[tag] >= 0
        both_begin = y_begins & z_begins & (type_of == type_of[tag])
        differ = equal & (y_goes_on != goes_on[0])  # one of two equal spans ends before the other
        equal = (equal & y_goes_on & goes_on[0]) | both_begin
        differ = differ | (equal & goes_on[1] & (y_after == 0))
        cost = self.missed_cost * (differ.astype(int) + (z_begins & ~both_begin))
        cost = cost + self.wrong_cost * (differ.astype(int) + (y_begins & ~both_begin))
        return cost, np.where(equal & ~differ & (y_after > 0), last, y_after)


def _machine_of(fst: FstArrays, num_symbols: int, place: IntArray) -> TargetMachine:
    """Return the machine of an acceptor without epsilon arcs, whose states are not merged."""
    weights, final, unit = semiring_weights(fst, TROPICAL)
    arcs = Arcs(fst.source, fst.nextstate, weights)
    class_of, classes = symbol_classes(arcs, fst.ilabel - 1, num_symbols)
    none, initial = arcs.take(slice(0)), TROPICAL.full((len(final),))
    initial[0] = 0
    return TargetMachine(TROPICAL, class_of, classes, none, initial, final, unit, place)
