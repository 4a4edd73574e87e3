"""Edit distances: the cost of inserting, deleting and substituting single symbols."""

from functools import cached_property

import numpy.typing as npt

from fstgrad.core.alphabet import Alphabet, SequenceLike, WordAlphabet
from fstgrad.core.checks import flag, instance
from fstgrad.core.errors import AlphabetError, InvalidInputError, NotSupportedError
from fstgrad.losses import transducers
from fstgrad.losses.base import Loss, ScaledLoss
from fstgrad.losses.edit_operations import Alignment
from fstgrad.losses.evaluation import Target
from fstgrad.losses.pairwise import PairLoss, SymbolCosts, pair_loss
from fstgrad.losses.transducer import TransducerLoss
from fstgrad.openfst import Fst, string_lengths

_WHOLE = 100  # up to this many symbols, one transducer is as fast as two factors


class EditDistance(TransducerLoss):
    """Edit distance: the least total cost of insertions, deletions and substitutions.

    L(y, y_i) = min over alignments of insert_cost #ins + delete_cost #del + substitute_cost #sub.

    Parameters
    ----------
    alphabet : Alphabet
        n symbols.
    insert_cost, delete_cost, substitute_cost : float
        Costs in nats, >= 0, or inf to forbid.  An insertion adds a symbol of the target; a deletion
        removes a symbol of the hypothesis.
    confusion : (n, n) array, optional
        confusion[a, b] is the cost in nats of aligning a in the hypothesis with b in the target
        (inf forbids).  It replaces the cost 0 of a match and `substitute_cost`.
    factored : bool, optional
        Use two factors with O(n) arcs (Figure 4b of Cortes et al. 2018) instead of one transducer
        with O(n^2) arcs.  By default True for more than 100 symbols without `confusion`.  The loss
        is the same.

    Raises
    ------
    InvalidInputError
        A cost is negative or NaN, `confusion` has another shape, or it is given with factored=True.

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
        factored: bool | None = None,
    ) -> None:
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        if factored is None:
            factored = confusion is None and len(alphabet) > _WHOLE
        if not flag("factored", factored):
            fst = transducers.edit_transducer.arrays(
                alphabet,
                insert_cost=insert_cost,
                delete_cost=delete_cost,
                substitute_cost=substitute_cost,
                confusion=confusion,
                arc_type="log64",
            )
            super().__init__(fst, alphabet)
        elif confusion is None:
            super().__init__(
                transducers.edit_factor_arrays(
                    alphabet, insert_cost, delete_cost, substitute_cost, "log64"
                ),
                alphabet,
            )
        else:
            raise InvalidInputError(
                "confusion has a cost for each pair of symbols and does not factor; "
                "leave factored out"
            )
        costs = (substitute_cost, delete_cost, insert_cost)
        self._costs = tuple(map(float, costs)) if confusion is None else None

    @cached_property
    def _pair_loss(self) -> PairLoss | None:
        n = len(self.alphabet)
        if self._costs is None:
            return pair_loss(self._arrays[0], n)
        substitute, delete, insert = self._costs
        return SymbolCosts(float(substitute), float(delete), float(insert), n)

    def align(self, y: SequenceLike, target: SequenceLike) -> Alignment:
        """Return a best alignment, using only the symbols of the pair; see `Loss.align`."""
        if self._costs is None:
            return super().align(y, target)
        pair = self.alphabet.encode(y, name="y"), self.alphabet.encode(target, name="target")
        own, other = (self.alphabet.decode(ids) for ids in pair)
        substitute, delete, insert = self._costs
        symbols = Alphabet(sorted({*own, *other}) or self.alphabet.symbols[:1])
        small = EditDistance(symbols, insert, delete, substitute, factored=False)
        return super(EditDistance, small).align(own, other)


class Hamming(TransducerLoss):
    """Hamming distance: `cost` for each position that differs; +inf if the lengths differ.

    L(y, y_i) = sum_t cost[y_t, (y_i)_t].

    Parameters
    ----------
    alphabet : Alphabet
        n symbols.
    cost : float, or (n, n) array
        A number >= 0, in nats, is the cost of each position that differs.  In an array, cost[a, b]
        is the cost of symbol a in y at the position of symbol b in the target, also for a = b.
        inf forbids.

    Raises
    ------
    InvalidInputError
        A cost is NaN or -inf, a single cost is negative, or the array has another shape.

    Notes
    -----
    Cortes et al. (2018) divide by the length; use `fg.Normalized(fg.Hamming(abc))` for
    that, as with every loss.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> Hamming(Alphabet("acgt"))("gat", "cat")
    1.0
    """

    def __init__(self, alphabet: Alphabet, cost: npt.ArrayLike = 1.0) -> None:
        fst = transducers.hamming_transducer.arrays(alphabet, cost=cost, arc_type="log64")
        super().__init__(fst, alphabet)


class LongestCommonSubsequence(TransducerLoss):
    """Symbols of the target that are not in the longest common subsequence: |y_i| - LCS(y, y_i).

    LCS is the length of the longest string whose symbols occur in both, in the same order and not
    necessarily side by side.  The loss is the edit distance with insertions of cost 1, deletions of
    cost 0 and no substitutions.  It is 0 if the target is a subsequence of y.

    Parameters
    ----------
    alphabet : Alphabet

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> LongestCommonSubsequence(Alphabet("abcd"))("acbd", "abcd")  # abd or acd: 3 of 4
    1.0
    """

    def __init__(self, alphabet: Alphabet) -> None:
        fst = transducers.subsequence_transducer.arrays(alphabet, arc_type="log64")
        super().__init__(fst, alphabet)


class OptimalStringAlignment(TransducerLoss):
    """Edit distance with transpositions of neighbours (restricted Damerau-Levenshtein).

    L(y, y_i) = min over alignments of insert_cost #ins + delete_cost #del + substitute_cost #sub +
    transpose_cost #transpositions.  A transposition aligns ab with ba (a != b); no symbol has
    two edits.

    Parameters
    ----------
    alphabet : Alphabet
        n symbols; the transducer has n (n - 1) + 1 states.
    insert_cost, delete_cost, substitute_cost, transpose_cost : float
        Costs in nats, >= 0, or inf to forbid.

    Raises
    ------
    InvalidInputError
        A cost is negative or NaN.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> OptimalStringAlignment(Alphabet("abc"))("ca", "ac")
    1.0
    """

    def __init__(
        self,
        alphabet: Alphabet,
        insert_cost: float = 1.0,
        delete_cost: float = 1.0,
        substitute_cost: float = 1.0,
        transpose_cost: float = 1.0,
    ) -> None:
        fst = transducers.transposition_transducer.arrays(
            alphabet,
            insert_cost=insert_cost,
            delete_cost=delete_cost,
            substitute_cost=substitute_cost,
            transpose_cost=transpose_cost,
            arc_type="log64",
        )
        super().__init__(fst, alphabet)


class Normalized(ScaledLoss):
    """A loss divided by the number of symbols of the target: L(y, y_i) / max(1, |y_i|).

    Against an empty target it is L, as in jiwer.  A target acceptor may hold several references if
    all have one length; otherwise the loss raises NotSupportedError.

    Parameters
    ----------
    loss : Loss

    Examples
    --------
    >>> from fstgrad import Alphabet, Hamming
    >>> Normalized(Hamming(Alphabet("acgt")))("gatt", "catc")
    0.5
    """

    def __init__(self, loss: Loss) -> None:
        super().__init__(loss, 1.0)

    def _factor(self, target: Target) -> float:
        if isinstance(target, Fst):
            lengths = string_lengths(target)
        else:
            lengths = {len(self.alphabet.encode(target, name="target"))}
        if len(lengths) != 1:
            raise NotSupportedError(
                f"the references have the lengths {sorted(lengths)}; a rate divides by one length: "
                "use EditDistance, or give references of one length"
            )
        return self.factor / max(1, *lengths)


class WordErrorRate(Normalized):
    """Edit distance divided by the number of words of the target.

    L(y, y_i) = (insert_cost #ins + delete_cost #del + substitute_cost #sub) / max(1, |y_i|) for the
    best alignment.  A str is a sentence, split at white space.  Target acceptors are supported as
    in `Normalized`.

    Parameters
    ----------
    alphabet : Alphabet
        The words, such as `Alphabet.from_sequences([s.split() for s in sentences])`.
    insert_cost, delete_cost, substitute_cost : float
        As in `EditDistance`.  sclite aligns with costs 3, 3, 4 but counts each error as 1.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> rate = WordErrorRate(Alphabet(["the", "cat", "a", "sat"]))
    >>> rate("a cat", "the cat sat sat")  # a substitution, two insertions
    0.75
    >>> rate(["a", "cat"], ["the", "cat", "sat", "sat"])
    0.75
    """

    def __init__(
        self,
        alphabet: Alphabet,
        insert_cost: float = 1.0,
        delete_cost: float = 1.0,
        substitute_cost: float = 1.0,
    ) -> None:
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        words = WordAlphabet(alphabet.symbols)
        super().__init__(EditDistance(words, insert_cost, delete_cost, substitute_cost))


class CharacterErrorRate(Normalized):
    """Edit distance divided by the number of characters of the target; a space is one.

    L(y, y_i) = (insert_cost #ins + delete_cost #del + substitute_cost #sub) / max(1, |y_i|) for the
    best alignment.  Target acceptors are supported as in `Normalized`.

    Parameters
    ----------
    alphabet : Alphabet
        Characters.  The rate of other symbols is `Normalized(EditDistance(alphabet))`.
    insert_cost, delete_cost, substitute_cost : float
        As in `EditDistance`.

    Raises
    ------
    AlphabetError
        A symbol is a word.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> CharacterErrorRate(Alphabet("abcdt"))("cat", "cadt")
    0.25
    """

    def __init__(
        self,
        alphabet: Alphabet,
        insert_cost: float = 1.0,
        delete_cost: float = 1.0,
        substitute_cost: float = 1.0,
    ) -> None:
        instance("alphabet", alphabet, Alphabet, "an Alphabet")
        word = next((s for s in alphabet if len(s) > 1 and s.isalpha()), None)
        if word is not None:
            raise AlphabetError(
                f"the alphabet has the word {word!r}, but CharacterErrorRate counts characters; "
                "use WordErrorRate(alphabet), or Normalized(EditDistance(alphabet)) for others"
            )
        super().__init__(EditDistance(alphabet, insert_cost, delete_cost, substitute_cost))
