"""Alignments of pairs by expectation maximization: which symbols of x produce which symbols of y.

A pair (x, y) is divided into links (u, v), where u has up to `max_x` symbols of x and v up to
`max_y` symbols of y; one of them may be empty.  The probability of an alignment is the product of
p(u, v) over its links.  Expectation maximization over all alignments of all pairs raises their
likelihood in every iteration (Ristad and Yianilos 1998; Jiampojamarn, Kondrak and Sherif 2007).

- `Aligner` : fit, the best alignment of a pair, posteriors of its links.
- `per_symbol` : an alignment as one string of y for each symbol of x.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fstgrad.core.checks import (
    BoolArray,
    FloatArray,
    IntArray,
    call_function,
    flag,
    instance,
    log_weights,
    one_of,
    positive_integer,
    positive_number,
)
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.sequences import fields, items, symbol_strings
from fstgrad.core.uninitialized import empty
from fstgrad.learning import kernels

Symbols = tuple[str, ...]
Pair = tuple[Symbols, Symbols]
NORMALIZATIONS = ("joint", "conditional")


class Link(NamedTuple):
    """Symbols of x and the symbols of y that they produce; one side may be empty."""

    x: Symbols
    y: Symbols


class Aligned(NamedTuple):
    """An alignment of a pair.

    links : the best alignment, in order.
    posterior : of each link, the probability that an alignment of the pair has it at this position.
    log_probability : of the pair, over all of its alignments, in nats.  With conditional
        normalization it is the log of a sum over the segmentations of x, and can exceed 0.
    """

    links: tuple[Link, ...]
    posterior: tuple[float, ...]
    log_probability: float


@dataclass(frozen=True)
class _Corpus:
    """The links of all alignments of pairs, as arrays.

    Node (i, j) of a pair, i symbols of x and j of y read, is first_node + i (|y| + 1) + j.  Links
    are sorted by their source, which is a topological order.

    source, nextstate, kind : (links,) nodes, and the number of (u, v).
    first_link, first_node : (pairs + 1,)
    """

    source: IntArray
    nextstate: IntArray
    kind: IntArray
    first_link: IntArray
    first_node: IntArray

    @property
    def pairs(self) -> int:
        """Number of pairs."""
        return len(self.first_link) - 1

    @property
    def links(self) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """The arguments of the kernels: the first link and node of each pair, and the links."""
        return self.first_link, self.first_node, self.source, self.nextstate


class Aligner:
    """Many-to-many alignment of pairs of strings.

    Parameters
    ----------
    max_x, max_y : int
        The largest number of symbols on either side of a link.
    empty_x, empty_y : bool
        Whether a link may have no symbols of x (an insertion), or of y (a deletion).
    longest : mapping of symbols of x to int, optional
        For each of these symbols, the largest number of symbols of y, instead of `max_y`, on a link
        whose first symbol of x it is, and on an insertion after it (at the beginning, before it).
    normalization : {"joint", "conditional"}
        p(u, v), which sums to one over all links, or p(v | u), which does so for each u.
    max_iter : int
        The largest number of iterations.  The fit stops earlier when the mean log-likelihood per
        pair rises by less than 1e-5 nats.
    start : callable (u, v) -> float, optional
        The initial advantage of a link in nats: its initial probability is proportional to
        exp(start(u, v)).  With a few nats for equal symbols, affixes are not
        spread over a stem that both sides share.
    smoothing : float >= 0
        This is added to the expected count of every link that occurs in an alignment of a whole
        pair of the data.

    Attributes
    ----------
    log_likelihood_ : (iterations,) float64, nats
        Sum over the pairs before each update; it never falls while `smoothing` is 0.
    log_probabilities_ : (pairs,) float64, nats
        Of each pair, over all of its alignments, before the last update.  With normalization
        "conditional" they may exceed 0: p(v | u) sums to one for each u, not over the ways to split
        x.

    Notes
    -----
    An iteration costs O(links) = O(sum |x| |y| max_x max_y).  All links have the same initial
    probability, up to `start`, so a fit is deterministic.

    Examples
    --------
    >>> pairs = [(tuple(x), tuple(y)) for x, y in [("ax", "aks"), ("xa", "ksa"), ("a", "a")]]
    >>> aligner = Aligner(max_x=1, max_y=2).fit(pairs)
    >>> [(link.x, link.y) for link in aligner.align(("x", "a", "x"), tuple("ksaks")).links]
    [(('x',), ('k', 's')), (('a',), ('a',)), (('x',), ('k', 's'))]
    """

    def __init__(
        self,
        max_x: int = 2,
        max_y: int = 2,
        *,
        empty_x: bool = True,
        empty_y: bool = True,
        longest: Mapping[str, int] | None = None,
        normalization: str = "joint",
        max_iter: int = 20,
        start: Callable[[Symbols, Symbols], float] | None = None,
        smoothing: float = 0.0,
    ) -> None:
        self.max_x = positive_integer("max_x", max_x)
        self.max_y = positive_integer("max_y", max_y)
        self.empty_x, self.empty_y = flag("empty_x", empty_x), flag("empty_y", empty_y)
        instance("longest", longest, Mapping | None, "a mapping of symbols to integers")
        self.longest = {} if longest is None else dict(longest)
        for symbol, most in self.longest.items():
            positive_integer(f"longest[{symbol!r}]", most, minimum=0)
        if start is not None and not callable(start):
            raise InvalidInputError(f"start is {start!r}; give a function (u, v) -> float")
        self.normalization = one_of("normalization", normalization, NORMALIZATIONS)
        self.max_iter = positive_integer("max_iter", max_iter)
        self.start = start
        self.smoothing = positive_number("smoothing", smoothing, allow_zero=True)

    def fit(self, pairs: Iterable[Pair]) -> "Aligner":
        """Learn the probabilities of links from pairs (x, y) of sequences of symbols.

        Raises
        ------
        InvalidInputError
            If there are no pairs.
        InfeasibleError
            If pairs have no alignment: one side is too long for the other; all are named.
        """
        read = _read(pairs)
        most_y = max([self.max_y, *self.longest.values()])
        self._x, self._y = _SubstringNumbers(self.max_x), _SubstringNumbers(most_y)
        self._number: dict[tuple[int, int], int] = {}
        corpus = self._corpus(read, grow=True)
        kinds = np.array(list(self._number), dtype=np.int64).reshape(-1, 2)
        log_p = np.full(len(kinds), -np.log(max(1, len(kinds))))
        if self.start is not None:
            xs, ys = self._x.strings(), self._y.strings()
            advantages = [
                call_function("start", self.start, xs[u], ys[v]) for u, v in kinds.tolist()
            ]
            log_p += log_weights("start(u, v)", advantages, log_p.shape)
            if len(log_p) and log_p.max() > -np.inf:  # else no pair has an alignment
                log_p -= np.logaddexp.reduce(log_p)
        log_z = empty(corpus.pairs)
        history: list[float] = []
        for _ in range(self.max_iter):
            counts = np.full(len(kinds), self.smoothing)
            kernels.alignments.expected_links(*corpus.links, corpus.kind, log_p, counts, log_z)
            self._check_aligned(read, log_z)
            history.append(float(log_z.sum()))
            log_p = self._normalized(counts, kinds)
            gain = np.inf if len(history) < 2 else history[-1] - history[-2]
            if gain < 1e-5 * corpus.pairs:
                break
        self.counts_ = counts
        self.log_p_ = log_p
        self.log_likelihood_, self.log_probabilities_ = np.array(history), log_z
        return self

    def discourage(self, min_count: float) -> "Aligner":
        """Penalise links with several symbols of y that are rare in the data.

        If the expected count of a string of two or more symbols of y over the data is below
        `min_count`, its probabilities are multiplied by e^-50 from now on, so that few different
        strings are enough to spell all pairs.
        """
        self._check_fitted()
        min_count = positive_number("min_count", min_count, allow_zero=True)
        kinds = np.array(list(self._number), dtype=np.int64).reshape(-1, 2)
        total = np.bincount(kinds[:, 1], weights=self.counts_)
        several = np.array([len(string) > 1 for string in self._y.strings()])
        rare = several[: len(total)] & (total < min_count)
        self.log_p_ = self.log_p_ - 50.0 * rare[kinds[:, 1]]
        return self

    def align(self, x: Sequence[str], y: Sequence[str]) -> Aligned:
        """Return the best alignment of a pair, the posteriors of its links, and log p."""
        return self.align_all([(x, y)])[0]  # type: ignore[list-item]

    def align_all(self, pairs: Sequence[Pair]) -> list[Aligned]:
        """Return the alignment of every pair.

        Raises
        ------
        InfeasibleError
            If pairs have no alignment with links that occur in the data; all are named.
        """
        pairs = _read(pairs)
        self._check_fitted()
        corpus = self._corpus(pairs, grow=False)
        log_p = np.append(self.log_p_, -np.inf)  # the last number is that of unknown links
        weight = log_p[corpus.kind]
        kind = np.arange(len(weight))  # each link has its own kind, so counts are posteriors
        chosen = kernels.alignments.best_links(*corpus.links, kind, weight)
        posterior, log_z = np.zeros(len(weight)), empty(corpus.pairs)
        kernels.alignments.expected_links(*corpus.links, kind, weight, posterior, log_z)
        reasons = {
            i: f"x is {' '.join(pairs[i][0])!r} and y {' '.join(pairs[i][1])!r}, which the links "
            "that the aligner learned cannot align"
            for i in np.flatnonzero(log_z == -np.inf).tolist()
        }
        if reasons:
            remedy = "fit it to pairs that have such links, or leave these pairs out"
            raise InfeasibleError.of_items(reasons, remedy)
        return [
            self._aligned(i, pair, corpus, chosen, posterior, float(log_z[i]))
            for i, pair in enumerate(pairs)
        ]

    def _aligned(
        self,
        i: int,
        pair: Pair,
        corpus: _Corpus,
        chosen: BoolArray,
        posterior: FloatArray,
        log_probability: float,
    ) -> Aligned:
        (x, y), start = pair, corpus.first_link[i]
        on_path = np.flatnonzero(chosen[start : corpus.first_link[i + 1]]) + start
        nodes = np.stack([corpus.source[on_path], corpus.nextstate[on_path]]) - corpus.first_node[i]
        (i0, i1), (j0, j1) = np.divmod(nodes, len(y) + 1)
        spans = zip(i0, i1, j0, j1, strict=True)
        links = tuple(Link(x[a:b], y[c:d]) for a, b, c, d in spans)
        return Aligned(links, tuple(posterior[on_path].tolist()), log_probability)

    def _check_fitted(self) -> None:
        if not hasattr(self, "log_p_"):
            raise InvalidInputError("the aligner has no probabilities; call fit first")

    def _normalized(self, counts: FloatArray, kinds: IntArray) -> FloatArray:
        """Return log p of each kind; -inf for a link on no complete alignment of the data."""
        share = counts / counts.max(initial=1.0)  # sums of huge counts would overflow
        total = np.full(len(share), share.sum())
        if self.normalization == "conditional":
            total = np.bincount(kinds[:, 0], weights=share)[kinds[:, 0]]
        log_p, used = np.full(len(share), -np.inf), share > 0
        log_p[used] = np.log(share[used]) - np.log(total[used])
        return log_p

    def _corpus(self, pairs: list[Pair], *, grow: bool) -> _Corpus:
        """Return the links of pairs; unknown kinds get new numbers if `grow`, otherwise K."""
        if not pairs:
            raise InvalidInputError("pairs is empty; give at least one pair")
        xs, x_first = self._x.numbered([x for x, _ in pairs], grow=grow)
        ys, y_first = self._y.numbered([y for _, y in pairs], grow=grow)
        symbols = [symbol for x, _ in pairs for symbol in x]
        longest = [self.longest.get(symbol, self.max_y) for symbol in symbols]
        most = np.array([*longest, self.max_y], dtype=int)
        empties = np.array([self.empty_x, self.empty_y])
        source, nextstate, u, v, first_link, first_node = kernels.alignments.all_links(
            xs, x_first, most, ys, y_first, empties
        )
        is_complete = kernels.alignments.complete_links(first_link, first_node, source, nextstate)
        if not is_complete.all():
            source, nextstate = source[is_complete], nextstate[is_complete]
            u, v = u[is_complete], v[is_complete]
            first_link = np.append(0, np.cumsum(is_complete))[first_link]
        # a key of (u, v), both from -1: (u + 1) width + v + 1, in place, because links are many
        width = int(v.max(initial=0)) + 2
        u += 1
        u *= width
        u += v
        u += 1
        del v
        keys, kind = _unique_inverse(u)
        del u
        strings = list(zip((keys // width - 1).tolist(), (keys % width - 1).tolist(), strict=True))
        if grow:
            self._number = {uv: i for i, uv in enumerate(strings)}
        number = np.array([self._number.get(uv, len(self._number)) for uv in strings], dtype=int)
        return _Corpus(source, nextstate, number[kind], first_link, first_node)

    def _check_aligned(self, pairs: list[Pair], log_z: FloatArray) -> None:
        reasons = {
            i: f"pairs has {len(pairs[i][0])} symbols of x and {len(pairs[i][1])} of y, which "
            f"links of up to {self.max_x} and {self.max_y} symbols cannot align"
            for i in np.flatnonzero(log_z == -np.inf).tolist()
        }
        if reasons:
            remedy = "raise max_x or max_y, allow empty sides, or leave these pairs out"
            raise InfeasibleError.of_items(reasons, remedy)


def _unique_inverse(keys: IntArray) -> tuple[IntArray, IntArray]:
    """Return `np.unique(keys, return_inverse=True)`, by a table if the numbers are small."""
    largest = int(keys.max(initial=-1)) + 1
    if largest > max(keys.size, 2**16):
        distinct, inverse = np.unique(keys, return_inverse=True)
        return distinct, inverse
    place = np.zeros(largest, dtype=np.int64)
    place[keys] = 1
    distinct = np.flatnonzero(place)
    place[distinct] = np.arange(len(distinct))
    return distinct, place[keys]


class _SubstringNumbers:
    """Numbers for the substrings of up to `most` symbols: 0 is the empty string, -1 unknown."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._known: dict[tuple[int, str], int] = {}

    def numbered(self, strings: Sequence[Symbols], *, grow: bool) -> tuple[IntArray, IntArray]:
        """Return (positions, most), the numbers of the substrings that start at each position.

        Substrings that would extend beyond the end of their string have the number -2.
        """
        first = np.cumsum([0, *map(len, strings)])
        numbers = np.full((int(first[-1]), self.most), -2, dtype=np.int64)
        for start, string in zip(first.tolist(), strings, strict=False):
            for i in range(len(string)):
                number = 0
                for k, symbol in enumerate(string[i : i + self.most]):
                    number = self._next(number, symbol, grow=grow)
                    numbers[start + i, k] = number
        return numbers, first

    def strings(self) -> list[Symbols]:
        """Return the substrings by number."""
        result: list[Symbols] = [()]
        for prefix, symbol in self._known:
            result.append((*result[prefix], symbol))
        return result

    def _next(self, number: int, symbol: str, *, grow: bool) -> int:
        key = (number, symbol)
        if grow and key not in self._known:
            self._known[key] = len(self._known) + 1
        return self._known.get(key, -1)


def _read(pairs: Iterable[Pair]) -> list[Pair]:
    """Return pairs (x, y) as tuples of symbols."""
    rows = fields("pairs", pairs, 2)
    xs = symbol_strings("x of pairs", [x for x, _ in rows])
    ys = symbol_strings("y of pairs", [y for _, y in rows])
    return list(zip(xs, ys, strict=True))


def per_symbol(links: Sequence[Link]) -> list[Symbols]:
    """Return one string of y for each symbol of x.

    A link with several symbols of x gives its string to the first of them.  A link without symbols
    of x gives its string to the symbol before the link, or to the first symbol if there is none.
    """
    for link in items("links", links):
        instance("a link", link, Link, "a Link")
    strings: list[Symbols] = []
    waiting: Symbols = ()
    for link in links:
        if not link.x and not strings:
            waiting += link.y
        elif not link.x:
            strings[-1] += link.y
        else:
            strings.append(waiting + link.y)
            strings.extend(itertools.repeat((), len(link.x) - 1))
            waiting = ()
    return strings
