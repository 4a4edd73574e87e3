"""The methods of losses that need no compilation: one pair, many pairs, alignments."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import FloatArray, IntArray, positive_integer
from fstgrad.core.errors import InfeasibleError, InvalidInputError, NotSupportedError
from fstgrad.core.sequences import batches, paired_batches
from fstgrad.core.uninitialized import empty
from fstgrad.losses.automata.kernels.arguments import Strings
from fstgrad.losses.automata.machine import TargetMachine
from fstgrad.losses.automata.target_loss import SumTargetLoss, TargetLoss
from fstgrad.losses.edit_operations import Alignment
from fstgrad.losses.pairwise import joined
from fstgrad.openfst import Fst

Target = SequenceLike | Fst


class PairEvaluation(ABC):
    """Losses of pairs of strings.

    The default uses the machine of each target; subclasses may have a faster algorithm.
    """

    alphabet: Alphabet

    @abstractmethod
    def _machine(self, target: Target) -> TargetMachine:
        """Return M as arrays; M is empty if the transducer rejects the target."""

    @abstractmethod
    def _to_loss(self, value: npt.NDArray[Any], machine: TargetMachine) -> FloatArray:
        """Return the losses (k,) in nats for values (k,) of the machine."""

    def __call__(self, y: SequenceLike, target: Target) -> float:
        """Return the loss of one pair in nats; +inf if the transducer has no path for it.

        y : sequence of symbols or ids
        target : sequence of symbols or ids, or an acyclic acceptor

        A symbol outside the alphabet raises AlphabetError.
        """
        ids = self.alphabet.encode(y, name="y")
        if isinstance(target, Fst):
            return float(self._unchecked(target).losses_of(ids[None])[0])
        return float(self.pairwise([ids], [self.alphabet.encode(target, name="target")])[0])

    def pairwise(
        self, ys: Sequence[SequenceLike], targets: Sequence[SequenceLike], *, threads: int = 1
    ) -> FloatArray:
        """Return the losses (N,) float64 in nats of ys[i] against targets[i], by compiled loops.

        Parameters
        ----------
        ys, targets : N sequences of symbols or ids each
        threads : int
            As in `matrix`.

        Raises
        ------
        InvalidInputError
            The numbers of strings differ.
        AlphabetError
            A string has a symbol outside the alphabet.

        Examples
        --------
        >>> import fstgrad as fg
        >>> fg.EditDistance(fg.Alphabet("abc")).pairwise(["ab", "cab"], ["ac", "b"]).tolist()
        [1.0, 2.0]
        """
        ys, targets = paired_batches(ys=ys, targets=targets)
        if len(ys) != len(targets):
            raise InvalidInputError(
                f"ys has {len(ys)} strings and targets {len(targets)}; pair them, or use matrix()"
            )
        pairs = np.repeat(np.arange(len(ys))[:, None], 2, axis=1)
        return self._of_pairs(
            *self._joined(ys, targets), pairs, positive_integer("threads", threads)
        )

    def matrix(
        self, ys: Sequence[SequenceLike], targets: Sequence[SequenceLike], *, threads: int = 1
    ) -> FloatArray:
        """Return the losses (N, M) float64 in nats of every y against every target.

        Parameters
        ----------
        ys : N sequences of symbols or ids
        targets : M sequences of symbols or ids
        threads : int
            Number of threads.  Kernels release the interpreter lock, so t threads on t cores are
            about t times as fast.  Losses that need a machine per target use one thread.

        Raises
        ------
        AlphabetError
            A string has a symbol outside the alphabet.
        """
        ys, targets = batches(ys=ys, targets=targets)
        pairs = np.indices((len(targets), len(ys))).reshape(2, -1)[::-1].T
        values = self._of_pairs(
            *self._joined(ys, targets),
            np.ascontiguousarray(pairs),
            positive_integer("threads", threads),
        )
        return values.reshape(len(targets), len(ys)).T

    def align(self, y: SequenceLike, target: SequenceLike) -> Alignment:
        """Return a best alignment: the edit operations with their symbols, places and costs.

        `str(alignment)` shows the two strings, one above the other.  `y` and `target` are sequences
        of symbols or ids.  O(|y| |target| x arcs for a pair of symbols).

        Raises
        ------
        NotSupportedError
            The loss is not the cost of a cheapest path of one transducer.
        InfeasibleError
            The loss of the pair is +inf.
        AlphabetError
            A string has a symbol outside the alphabet.

        Examples
        --------
        >>> import fstgrad as fg
        >>> print(fg.EditDistance(fg.Alphabet("eginkst")).align("sitting", "kitten"))
        sitting
        S...S.D
        kitten-
        """
        raise NotSupportedError(
            f"a {type(self).__name__} has no single best alignment; align by a tropical loss, or "
            "by each part of a sum (.losses)"
        )

    def _joined(
        self, ys: Sequence[SequenceLike], targets: Sequence[SequenceLike]
    ) -> tuple[Strings, Strings]:
        return joined(self.alphabet, ys, "ys"), joined(self.alphabet, targets, "targets")

    def _of_pairs(self, y: Strings, z: Strings, pairs: IntArray, threads: int) -> FloatArray:
        """Return the losses (N,) of pairs (N, 2): the numbers of a string in y and one in z."""
        result = empty(len(pairs))
        for target in np.unique(pairs[:, 1]):
            ids = z.ids[z.first[target] : z.first[target + 1]]
            against = self._unchecked(ids)
            rows = np.flatnonzero(pairs[:, 1] == target)
            for i in rows:
                start, stop = y.first[pairs[i, 0]], y.first[pairs[i, 0] + 1]
                result[i] = against.losses_of(y.ids[start:stop][None])[0]
        return result

    @property
    def _work(self) -> float | None:
        """The work of the faster algorithm, as in `DynamicProgram`; None if there is none."""
        return None

    def _unchecked(self, target: Target) -> TargetLoss | SumTargetLoss:
        """Return the loss against a target, even if the transducer rejects the target."""
        return TargetLoss(self.alphabet, self._machine(target), self._to_loss)


@dataclass(frozen=True, eq=False)
class Programme:
    """The losses of strings (k, l) against one target, by the faster algorithm of a loss.

    loss : the loss; target : (m,) int64 ids; work : as in `DynamicProgram`.
    """

    loss: PairEvaluation
    target: IntArray
    work: float

    def __call__(self, strings: IntArray) -> FloatArray:
        """Return the losses (k,) in nats of `strings` (k, l)."""
        k, length = strings.shape
        y = Strings(np.ascontiguousarray(strings).ravel(), np.arange(k + 1) * length)
        z = Strings(self.target, np.array([0, len(self.target)]))
        pairs = np.column_stack([np.arange(k), np.zeros(k, dtype=np.int64)])
        return losses_of_strings(self.loss, y, z, pairs)


def has_dynamic_program(loss: PairEvaluation) -> bool:
    """Return whether one call computes many pairs, without a machine for each target."""
    return loss._work is not None


def losses_of_strings(loss: PairEvaluation, y: Strings, z: Strings, pairs: IntArray) -> FloatArray:
    """Return the losses (N,) in nats of pairs (N, 2) of strings; the ids are not checked."""
    return loss._of_pairs(y, z, pairs, 1)


def no_finite_loss_error(
    alphabet: Alphabet, target: SequenceLike | Fst, remedy: str
) -> InfeasibleError:
    """Return the error for a target against which no hypothesis has a finite loss."""
    shown = "acceptor"
    if not isinstance(target, Fst):
        shown = " ".join(alphabet.decode(alphabet.encode(target)))
    return InfeasibleError(
        f"the transducer rejects the target {shown!r}: no hypothesis has a finite loss against it; "
        f"{remedy}"
    )
