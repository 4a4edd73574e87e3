"""A pair n-gram: a joint sequence model of letters and the strings aligned with them.

EM aligns each symbol of x with up to two symbols of y.  The sequence of these pairs is a Markov
chain of order 5, with probabilities from interpolated, modified Kneser-Ney smoothing (Chen and
Goodman 1999; Bisani and Ney 2008).  Decoding searches for the most probable sequence of pairs whose
left sides are x.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fstgrad.learning.align import Aligner, per_symbol

Symbols = tuple[str, ...]
Token = tuple[str, Symbols]
Context = tuple[Token, ...]
START: Token = ("<s>", ())
END: Token = ("</s>", ())


class KneserNey:
    """An n-gram model p(token | context) with interpolated, modified Kneser-Ney smoothing.

    p_k(t | h) = max(c(h t) - D(c(h t)), 0) / c(h) + b(h) p_{k-1}(t | h without its first token),
    where b(h) is the mass that the discounts D remove, so that p sums to one.  Below the highest
    order, c is the number of different tokens before an n-gram.  The lowest order is interpolated
    with a uniform distribution over the tokens, the end and one unknown token.
    """

    def __init__(self, sequences: Iterable[Sequence[Token]], order: int) -> None:
        self.order = order
        counts = self._counts(sequences)
        self.tokens = {gram[-1] for gram in counts[0]}
        self.uniform = 1 / (len(self.tokens) + 1)
        self._p: dict[Context, float] = {}
        self._rest: dict[Context, float] = {}
        for grams in counts:
            self._smooth(grams)

    def p(self, token: Token, context: Context) -> float:
        """Return p(token | context); only the last order - 1 tokens of the context matter."""
        context = context[max(0, len(context) - self.order + 1) :]
        factor = 1.0
        while True:
            found = self._p.get((*context, token))
            if found is not None:
                return factor * found
            factor *= self._rest.get(context, 1.0)
            if not context:
                return factor * self.uniform
            context = context[1:]

    def state(self, context: Context) -> Context:
        """Return the longest suffix of a context on which the next token's probability depends."""
        context = context[max(0, len(context) - self.order + 1) :]
        while context and context not in self._rest:
            context = context[1:]
        return context

    def _counts(self, sequences: Iterable[Sequence[Token]]) -> list[Counter[Context]]:
        """Return the counts of n-grams, of orders 1 to `order`.

        The count of an n-gram of a lower order is the number of different tokens before it; at the
        start of a sequence, where there is none, it is the number of occurrences.
        """
        whole: list[Counter[Context]] = [Counter() for _ in range(self.order)]
        for sequence in sequences:
            padded = (START, *sequence, END)
            for end in range(2, len(padded) + 1):
                for k in range(1, min(self.order, end) + 1):
                    whole[k - 1][padded[end - k : end]] += 1
        counts = [Counter[Context]() for _ in whole[1:]] + [whole[-1]]
        for k in range(self.order - 1):
            counts[k].update(gram[1:] for gram in whole[k + 1])
            counts[k].update({g: c for g, c in whole[k].items() if g[0] == START})
        return counts

    def _smooth(self, grams: Counter[Context]) -> None:
        """Add the probabilities of one order; those of the order below must exist."""
        discounts = _discounts(grams)
        total: dict[Context, int] = defaultdict(int)
        left: dict[Context, float] = defaultdict(float)
        for gram, count in grams.items():
            total[gram[:-1]] += count
            left[gram[:-1]] += discounts[min(count, 3)]
        rest = {context: left[context] / total[context] for context in total}
        for gram, count in grams.items():
            context = gram[:-1]
            lower = self.p(gram[-1], context[1:]) if context else self.uniform
            own = (count - discounts[min(count, 3)]) / total[context]
            self._p[gram] = own + rest[context] * lower
        self._rest |= rest


def _discounts(grams: Counter[Context]) -> tuple[float, float, float, float]:
    """Return the discounts of counts 0, 1, 2 and >= 3 (Chen and Goodman 1999, Eq. 26)."""
    number = Counter(grams.values())
    one, two, three, four = (number[k] for k in (1, 2, 3, 4))
    if not (one and two and three and four):
        return 0.0, 0.5, 0.5, 0.5
    y = one / (one + 2 * two)
    raw = (1 - 2 * y * two / one, 2 - 3 * y * three / two, 3 - 4 * y * four / three)
    first, second, third = (min(max(d, 0.05), k - 0.05) for k, d in enumerate(raw, start=1))
    return 0.0, first, second, third


class Hypothesis(NamedTuple):
    """A partial output of the decoder: log p, the context that still matters, and y so far."""

    log_p: float
    state: Context
    y: Symbols


class PairNGram:
    """The joint n-gram of aligned pairs, and its decoder.

    Parameters
    ----------
    pairs : sequence of (x, y), tuples of symbols
        Pairs with an empty y or |y| > 2 |x| cannot be aligned and are left out.
    order : int
        The order n of the n-gram.
    beam : int
        The number of hypotheses, with different states, that are kept at each symbol of x.
    """

    def __init__(
        self, pairs: Sequence[tuple[Symbols, Symbols]], order: int = 6, beam: int = 40
    ) -> None:
        usable = [(x, y) for x, y in pairs if 0 < len(y) <= 2 * len(x)]
        aligner = Aligner(1, 2, empty_x=False).fit(usable)
        aligned = aligner.align_all(usable)
        sequences = [
            tuple(zip(x, per_symbol(found.links), strict=True))
            for (x, _), found in zip(usable, aligned, strict=True)
        ]
        self.beam = beam
        self.model = KneserNey(sequences, order)
        self.known = {y for _, side in usable for y in side}
        self.given: dict[str, list[Symbols]] = defaultdict(list)
        for token in sorted({token for sequence in sequences for token in sequence}):
            self.given[token[0]].append(token[1])

    def predict(self, x: Symbols) -> Symbols:
        """Return the y of the most probable sequence of pairs in the beam."""
        beam = [Hypothesis(0.0, (START,), ())]
        for symbol in x:
            beam = self._step(beam, symbol)
        last = [(h.log_p + math.log(self.model.p(END, h.state)), h.y) for h in beam]
        return max(last)[1]

    def _step(self, beam: list[Hypothesis], symbol: str) -> list[Hypothesis]:
        """Return the best hypotheses after one more symbol of x, one per state."""
        copy: Symbols = (symbol,) if symbol in self.known else ()
        best: dict[Context, Hypothesis] = {}
        for log_p, state, y in beam:
            for string in self.given.get(symbol, [copy]):
                token = (symbol, string)
                value = log_p + math.log(self.model.p(token, state))
                after = self.model.state((*state, token))
                if after not in best or value > best[after].log_p:
                    best[after] = Hypothesis(value, after, y + string)
        return sorted(best.values(), key=lambda h: -h.log_p)[: self.beam]
