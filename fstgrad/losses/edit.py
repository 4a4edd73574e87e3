"""Edit distances: losses of single symbols inserted, deleted and substituted."""

from typing import Any

import numpy.typing as npt

from fstgrad import transducers
from fstgrad.alphabet import Alphabet
from fstgrad.errors import InvalidInputError
from fstgrad.losses.base import TransducerLoss


class EditDistance(TransducerLoss):
    """Edit distance: the least total cost of insertions, deletions and substitutions.

    L(y, y_i) = min over alignments of insert_cost #ins + delete_cost #del + substitute_cost #sub.

    Parameters
    ----------
    alphabet : Alphabet
        n symbols.
    insert_cost, delete_cost, substitute_cost : float
        An insertion adds a symbol of the target, a deletion removes a symbol of the hypothesis.
    confusion : (n, n) array, optional
        confusion[a, b] is the cost of aligning a in the hypothesis with b in the target, instead
        of 0 on the diagonal and `substitute_cost` off it.
    factored : bool
        Use the two factors whose size is linear in n (Figure 4b) instead of the one transducer.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> EditDistance(Alphabet("eginkst"))("sitting", "kitten")
    3.0
    """

    def __init__(
        self,
        alphabet: Alphabet,
        insert_cost: float = 1.0,
        delete_cost: float = 1.0,
        substitute_cost: float = 1.0,
        *,
        confusion: npt.ArrayLike | None = None,
        factored: bool = False,
    ) -> None:
        costs: dict[str, Any] = {
            "insert_cost": insert_cost,
            "delete_cost": delete_cost,
            "substitute_cost": substitute_cost,
            "arc_type": "log64",
        }
        if not factored:
            fst = transducers.edit_transducer(alphabet, confusion=confusion, **costs)
            super().__init__(fst, alphabet)
        elif confusion is None:
            super().__init__(transducers.edit_factors(alphabet, **costs), alphabet)
        else:
            raise InvalidInputError(
                "confusion has a cost for each pair of symbols and does not factor; "
                "leave factored=False"
            )


class Hamming(TransducerLoss):
    """Hamming distance: `cost` for each position that differs; +inf for another length.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> Hamming(Alphabet("acgt"))("gat", "cat")
    1.0
    """

    def __init__(self, alphabet: Alphabet, cost: float = 1.0) -> None:
        fst = transducers.hamming_transducer(alphabet, cost=cost, arc_type="log64")
        super().__init__(fst, alphabet)
