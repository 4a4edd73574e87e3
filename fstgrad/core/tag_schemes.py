"""TagScheme: spans of tokens (entities, chunks) written as one tag per token, as in BIO."""

from collections.abc import Iterable

import numpy as np

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import BoolArray, IntArray, freeze, instance, one_of
from fstgrad.core.errors import AlphabetError, InvalidInputError
from fstgrad.core.sequences import items

# the letters of a span's first, inner and last token, and of a span of one token
SCHEMES = {"BIO": "BI", "BIOES": "BIES", "BILOU": "BILU", "BMES": "BMES"}
OUTSIDE = "O"
_BEGIN, _INSIDE, _LAST, _UNIT = range(4)


def _tags(tags: Iterable[str]) -> list[str]:
    """Return tags as a list, checked here, where errors call them so."""
    for i, tag in enumerate(found := items("tags", tags)):
        instance(f"tags[{i}]", tag, str, "a str")
        if tag in found[:i]:
            raise AlphabetError(f"tags has {tag!r} more than once; list each tag once")
    return found


class TagScheme:
    """Tags "O" and "B-PER", "I-PER", ...: which may follow which, and the spans they write.

    The spans of any tags are those of conlleval and of the default of seqeval.  A span ends after a
    last or a single token, and before a tag that does not continue it; an inner or a last token
    without a span of its type before it begins one.  The tags that are `allowed` need no such rule.

    Parameters
    ----------
    tags : Alphabet or iterable of n str
        The names, in the order of their ids: "O", or a letter of the scheme and a type, "B-PER".
        The type may be missing ("B").
    scheme : {"BIO", "BIOES", "BILOU", "BMES"}
        The letters of the first, inner, last and only token of a span.  BIO (also called IOB2) has
        no letter for the last and the only one.

    Attributes
    ----------
    alphabet : Alphabet
        The tags.
    types : tuple of str
        The types of spans, in the order of the tags.
    allowed : (n, n) bool
        Whether tag y may follow tag x, at [x, y].
    allowed_start, allowed_end : (n,) bool
        Whether a sequence may begin, or end, with a tag.
    type_of : (n,) int64
        The number of the type of each tag; -1 for "O".

    Raises
    ------
    InvalidInputError
        A tag has no letter of the scheme.
    AlphabetError
        There is no tag, or one is repeated.

    Examples
    --------
    >>> scheme = TagScheme(["O", "B-PER", "I-PER"])
    >>> scheme.allowed.astype(int).tolist()  # I-PER follows B-PER and I-PER
    [[1, 1, 0], [1, 1, 1], [1, 1, 1]]
    >>> scheme.spans(["B-PER", "I-PER", "O", "B-PER"])
    [('PER', 0, 2), ('PER', 3, 4)]
    """

    def __init__(self, tags: Alphabet | Iterable[str], scheme: str = "BIO") -> None:
        self.scheme = one_of("scheme", scheme, tuple(SCHEMES))
        self.alphabet = tags if isinstance(tags, Alphabet) else Alphabet(_tags(tags))
        letters, parts = SCHEMES[scheme], []
        for tag in self.alphabet:
            letter, dash, kind = tag.partition("-")
            if tag != OUTSIDE and (letter not in tuple(letters) or bool(dash) != bool(kind)):
                raise InvalidInputError(
                    f"tags has {tag!r}; a tag of {scheme} is {OUTSIDE!r}, or {', '.join(letters)} "
                    f"and a type as in '{letters[0]}-PER'"
                )
            parts.append((letters.find(letter) if tag != OUTSIDE else -1, kind))
        self.types: tuple[str, ...] = tuple(dict.fromkeys(k for role, k in parts if role >= 0))
        self._role = np.array([role for role, _ in parts])
        numbers = {kind: i for i, kind in enumerate(self.types)}
        self.type_of = np.array([numbers[kind] if role >= 0 else -1 for role, kind in parts])
        continues = np.isin(self._role, (_INSIDE, _LAST))
        stays_open = np.isin(self._role, (_BEGIN, _INSIDE))
        same = self.type_of[:, None] == self.type_of
        may_end = ~stays_open | (len(letters) == 2)
        self.allowed: BoolArray = np.where(continues, stays_open[:, None] & same, may_end[:, None])
        self.allowed_start: BoolArray = ~continues
        self.allowed_end: BoolArray = may_end
        freeze(**{k: v for k, v in vars(self).items() if isinstance(v, np.ndarray)})

    def __repr__(self) -> str:
        return f"TagScheme({list(self.alphabet)}, scheme={self.scheme!r})"

    def steps(self) -> tuple[BoolArray, IntArray]:
        """Return how a tag changes the open span, as two arrays (K + 1, n) for K types.

        State 0 is no open span, state k + 1 an open one of type k.  The first array says whether
        the tag continues the open span (otherwise it ends it, and begins one unless it is "O"), the
        second has the state after the tag.

        Examples
        --------
        >>> continues, after = TagScheme(["O", "B-PER", "I-PER"]).steps()
        >>> continues.astype(int).tolist(), after.tolist()
        ([[0, 0, 0], [0, 0, 1]], [[0, 1, 1], [0, 1, 1]])
        """
        state = np.arange(len(self.types) + 1)[:, None]
        continues = np.isin(self._role, (_INSIDE, _LAST)) & (state == self.type_of + 1)
        stays_open = np.isin(self._role, (_BEGIN, _INSIDE))
        after = np.where(stays_open, self.type_of + 1, 0) + np.zeros_like(state)
        return continues, after

    def spans(self, tags: SequenceLike) -> list[tuple[str, int, int]]:
        """Return the spans (type, start, stop) of one sequence of tags or ids, in order.

        The tokens of a span are start .. stop - 1.

        Raises
        ------
        AlphabetError
            A tag is not one of the scheme.

        Examples
        --------
        >>> TagScheme(["O", "B", "I"]).spans([0, 2, 2, 1])  # an I without a B begins a span
        [('', 1, 3), ('', 3, 4)]
        """
        continues, after = self.steps()
        spans: list[tuple[str, int, int]] = []
        state = 0
        for t, tag in enumerate(self.alphabet.encode(tags, name="tags").tolist()):
            kind = int(self.type_of[tag])
            if continues[state, tag]:
                name, start, _ = spans.pop()
                spans.append((name, start, t + 1))
            elif kind >= 0:
                spans.append((self.types[kind], t, t + 1))
            state = int(after[state, tag])
        return spans
