"""Lattice: the log-linear distribution over the paths of an acyclic acceptor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fstgrad import plot
from fstgrad.core import checks
from fstgrad.core.alphabet import EPSILON_SYMBOL, Alphabet, SequenceLike
from fstgrad.core.checks import FloatArray, IntArray, Seed, positive_integer
from fstgrad.core.distribution import ArrayDistribution, Distribution, log_probability
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.core.sequences import items
from fstgrad.core.short_repr import short_repr
from fstgrad.losses import MAX_STATES, Loss, Target
from fstgrad.losses.automata.band import Band
from fstgrad.openfst import Fst, Symbols, from_arrays
from fstgrad.strings.lattices import build, search
from fstgrad.strings.lattices.confusion import ConfusionNetwork, slot_counts
from fstgrad.strings.lattices.graph import NO_SYMBOL, Flow, Graph
from fstgrad.strings.lattices.loss import LatticeLoss, compose


@dataclass(frozen=True, eq=False)
class Lattice(ArrayDistribution):
    """p(path) = exp(sum of the scores of its arcs) / Z over the paths of an acyclic acceptor.

    States 0 .. S-1 are in topological order; every state lies on a path from the start, 0, to the
    end, S - 1.  A path reads the labels of its arcs; arcs with label -1 (epsilon) read nothing.
    Several paths may read one string; its probability is the sum of theirs.  Use `from_fst`,
    `from_text`, `from_arcs`, `from_nbest` or `from_confusion_network` to make a lattice.

    About strings: `log_prob`, `parts`, `nll`, `sample`, `kbest`, `mode`.  About paths:
    `log_partition`, `marginals` (arc posteriors), `expectation`, `covariance`, `third_order`,
    `entropy` (of the strings, too, if each has one path), `entropy_and_gradient`, `cross_entropy`,
    `kl`, `sample_paths`, `best_path`, `to_confusion_network`.

    Attributes
    ----------
    alphabet : Alphabet
    graph : Graph
        The A arcs, sorted by source: `graph.source`, `graph.nextstate`.
    label : (A,) int64
        The id of the symbol that each arc reads, or -1 (epsilon).
    scores : (A,) float64
        Log-weights in nats (higher is likelier); -inf forbids.
    origin : (A,) int64
        The number of each arc in the input; for an arc that represents the final score of a state,
        the number of that state.
    ends : (A,) bool
        Which arcs represent final scores.

    Notes
    -----
    Cost of log Z and the marginals: O(A).  The results of the passes are cached.

    Examples
    --------
    >>> abc = Alphabet("ab")
    >>> lattice = Lattice.from_nbest(["ab", "b"], [0.0, 0.0], abc)
    >>> round(float(np.exp(lattice.log_prob("ab"))), 12)
    0.5
    """

    alphabet: Alphabet
    graph: Graph
    label: IntArray
    scores: FloatArray
    origin: IntArray
    ends: npt.NDArray[np.bool_]

    event_ndim = 1
    _repr_svg_ = plot.notebook(plot.confusion_network, lambda self: self.num_arcs <= 300)
    __repr__ = short_repr

    def __post_init__(self) -> None:
        """Check the arrays and make them read-only."""
        checks.instance("graph", self.graph, Graph, "a Graph, as Lattice.from_arcs makes it")
        self.graph.check_arcs(self.label, self.scores, self.alphabet)
        origin = checks.index_array("origin", self.origin, 2**62, (self.num_arcs,), lower=-1)
        vars(self).update(origin=origin)
        checks.freeze(label=self.label, scores=self.scores, origin=self.origin, ends=self.ends)

    @classmethod
    def from_arcs(
        cls,
        source: npt.ArrayLike,
        nextstate: npt.ArrayLike,
        label: npt.ArrayLike,
        scores: npt.ArrayLike,
        alphabet: Alphabet,
        *,
        final: Mapping[int, float] | Iterable[int],
        start: int = 0,
    ) -> "Lattice":
        """Return the lattice with these arcs, in any order; states on no path are removed.

        Parameters
        ----------
        source, nextstate : (G,) int
            States, any integers in [0, 2^31).
        label : (G,) int
            Ids of symbols, or -1 for epsilon.
        scores : (G,) float
            Log-weights in nats (higher is likelier); -inf forbids.
        alphabet : Alphabet
        final : states, or a mapping from states to their final scores in nats
        start : int, a state

        Raises
        ------
        InvalidInputError
            The arcs have a cycle, or shapes or values are wrong.
        InfeasibleError
            No path leads from the start to a final state.
        """
        checks.instance("alphabet", alphabet, Alphabet, "an Alphabet")
        arcs = build.ScoredArcs.checked(source, nextstate, label, scores, len(alphabet))
        finals = build.scored_states(final)
        return cls(alphabet, *build.ordered(arcs, start, finals))

    @classmethod
    def from_fst(cls, fst: Fst, alphabet: Alphabet) -> "Lattice":
        """Return the lattice of an acyclic acceptor of pynini or pywrapfst.

        Weights are costs in nats: the score of an arc is minus its weight.  If the FST has symbol
        tables, symbols are matched by name; otherwise label i + 1 is symbol i.

        Raises
        ------
        FstError, InfeasibleError
            The FST is not an acceptor or is cyclic; it has no symbol table, and its labels may be
            the bytes of a text; it has no path from its start to a final state.
        AlphabetError
            A label is not in the alphabet.
        """
        arcs, start, final = build.arcs_of_fst(fst, alphabet)
        return cls(alphabet, *build.ordered(arcs, start, final))

    @classmethod
    def from_text(
        cls, text: str, alphabet: Alphabet, *, symbols: Symbols | None = None
    ) -> "Lattice":
        r"""Return the lattice of a text; its labels are symbols of the alphabet.

        The forms are those of files, `fstgrad.openfst.lattice_text`: in AT&T text, "source
        nextstate label [label] [cost]" is an arc and "state [cost]" a final state, and the first
        state is the start; Kaldi's costs have two parts, and k2 has scores and the label -1.
        Scores are minus the costs.  `symbols` has the pairs (label, symbol) of numeric labels.
        FstError: a line is malformed or ambiguous.

        Examples
        --------
        >>> lattice = Lattice.from_text("0 1 a 0.5\n1 2 b\n1\n2", Alphabet("ab"))
        >>> lattice.num_paths
        2
        """
        arcs, start, final = build.arcs_of_text(text, alphabet, symbols)
        return cls(alphabet, *build.ordered(arcs, start, final))

    @classmethod
    def from_nbest(
        cls, hypotheses: Sequence[SequenceLike], scores: npt.ArrayLike, alphabet: Alphabet
    ) -> "Lattice":
        """Return the lattice of an n-best list, with one path per hypothesis.

        `scores` (N,) are log-weights in nats.  The first arc of path i is an epsilon arc with the
        score scores[i] and `origin` i; the other arcs have the score 0.
        """
        arcs, final = build.arcs_of_nbest(hypotheses, scores, alphabet)
        return cls(alphabet, *build.ordered(arcs, 0, {final: 0.0}))

    @classmethod
    def from_confusion_network(
        cls,
        slots: Sequence[Sequence[tuple[str | None, float]]],
        alphabet: Alphabet,
    ) -> "Lattice":
        """Return the lattice of a confusion network (a sausage).

        `slots` has for each position the alternatives (symbol, score in nats); None is epsilon.
        Arcs are numbered slot by slot.

        Examples
        --------
        >>> slots = [[("a", 0.0), ("b", -1.0)], [("b", 0.0), (None, 0.0)]]
        >>> Lattice.from_confusion_network(slots, Alphabet("ab")).num_paths
        4
        """
        slots = items("slots", slots)
        arcs = build.arcs_of_slots(slots, alphabet)
        return cls(alphabet, *build.ordered(arcs, 0, {len(slots): 0.0}))

    @property
    def num_states(self) -> int:
        """Number of states S."""
        return self.graph.num_states

    @property
    def num_arcs(self) -> int:
        """Number of arcs A."""
        return self.graph.num_arcs

    @cached_property
    def num_paths(self) -> int:
        """Number of paths, including those with the score -inf."""
        return self.graph.num_paths

    def with_scores(self, scores: npt.ArrayLike) -> "Lattice":
        """Return the lattice with other scores (A,), in nats; a compiled loss works for both."""
        array = checks.log_weights("scores", scores, (self.num_arcs,)).copy()
        checks.freeze(scores=array)
        twin = object.__new__(type(self))  # the arcs were checked before
        vars(twin).update({name: vars(self)[name] for name in self.__match_args__}, scores=array)
        return twin

    def scatter(self, scores: Any) -> Any:
        """Return the scores (A,) of the arcs, from scores in the order of the input.

        Arcs that were not in the input (symbols of an n-best list, final scores) keep their scores.

        Parameters
        ----------
        scores : (G,) array or PyTorch tensor
            Log-weights in nats of the G arcs of the input, including those on no path; for
            `from_nbest`, one per hypothesis.

        Returns
        -------
        (A,) array or tensor, like `scores`; differentiable in a tensor, input of `fstgrad.torch`.

        Examples
        --------
        >>> arcs = [1, 0], [2, 1], [1, 0], [0.0, 0.0]  # the second one leaves the start
        >>> lattice = Lattice.from_arcs(*arcs, Alphabet("ab"), final=[2])
        >>> lattice.scatter(np.array([5.0, 3.0]))
        array([3., 5.])
        """
        given = build.LatticeInput(self.graph, self.label, self.origin, self.ends)
        return given.scatter(scores, self.scores)

    def compile(
        self,
        loss: Loss,
        target: Target,
        *,
        cap: float | None = None,
        band: Band | None = None,
        max_states: int = MAX_STATES,
    ) -> LatticeLoss:
        """Return the loss of every string of the lattice against one target.

        The result works for every `with_scores`; only `closest` leaves out the strings that the
        scores of this lattice forbid.

        Parameters
        ----------
        loss : Loss
            A loss over the alphabet of the lattice.
        target : sequence, or an acyclic acceptor of several targets (see `Loss.compile`)
        cap : float, optional
            Compile min(L, cap), in nats, instead of the loss L.
        band : int or (int, int), optional
            Compile L_k >= L, with only the alignments near the diagonal, as in `Loss.compile`.
        max_states : int
            Fail beyond this many states of the composition.

        Raises
        ------
        StateLimitError, InfeasibleError, InvalidInputError, NotSupportedError
        """
        checks.instance("loss", loss, Loss, "a Loss")
        if loss.alphabet != self.alphabet:
            raise InvalidInputError(
                f"loss is over {loss.alphabet!r}, the lattice over {self.alphabet!r}; "
                "make both with one Alphabet"
            )
        most = positive_integer("max_states", max_states)
        b = compose(self.graph, self.label, loss, target, cap=cap, band=band, max_states=most)
        return replace(b, scores=self.scores)

    @property
    def recentered(self) -> "Lattice":
        """The same distribution with pushed scores if large scores cost digits; else itself.

        Examples
        --------
        >>> p = Lattice.from_arcs([0, 1], [1, 2], [0, 1], [-1e30, 0.5], Alphabet("ab"), final=[2])
        >>> p.recentered.scores.tolist()
        [0.5, 0.0]
        """
        return self._pushed[0]

    def log_partition(self) -> float:
        """Return log Z in nats, the log of the sum over all paths of exp(score)."""
        return self._flow.log_z + self._pushed[1]

    def marginals(self) -> FloatArray:
        """Return the arc posteriors (A,): the probability of passing each arc."""
        return self._flow.posterior.copy()

    def log_prob(self, structure: SequenceLike) -> float:
        """Return log p of a string in nats, summed over its paths; -inf if it has no path."""
        ids, scores = self._checked("structure", structure), self.recentered.scores
        total = search.log_sum_of_string(self.graph, self.label, scores, ids)
        return float(log_probability(total, self._flow.log_z))

    def parts(self, structure: SequenceLike) -> FloatArray:
        """Return the arc posteriors (A,) given a string; each is 0 or 1 if it has one path.

        Raises
        ------
        InfeasibleError
            The string is not in the lattice.
        """
        ids = self._checked("structure", structure)
        return search.posterior_of_string(self.graph, self.label, self.recentered.scores, ids)[1]

    def expected_loss(self, b: LatticeLoss) -> float:
        """Return E[L] in nats; +inf, unlike `fg.risk`, if a path of finite score has L = +inf."""
        checks.instance("b", b, LatticeLoss, "what compile returns")
        scores = self.recentered.scores
        return np.inf if b._leaves_out(self.graph, scores) else b.risk(self.graph, scores)[0]

    def covariance_product(self, direction: npt.ArrayLike) -> FloatArray:
        """Return the derivative of the arc posteriors along `direction` (A,), a score change."""
        values = checks.direction_array("direction", direction, self.scores.shape)
        mean, given = self._flow.conditional_means(values)
        return self._flow.posterior * (given - mean)

    def third_order(self, v: npt.ArrayLike, u: npt.ArrayLike) -> FloatArray:
        """Return the derivative (A,) of Cov v along u (A,): the third derivative of log Z.  O(A).

        Examples
        --------
        >>> p = Lattice.from_nbest(["a", "b"], [0.0, 0.0], Alphabet("ab"))
        >>> bool(p.third_order(p.scores + 1, p.scores).any())  # all paths have three arcs
        False
        """
        directions = (("v", v), ("u", u))
        first, second = (checks.direction_array(n, x, self.scores.shape) for n, x in directions)
        (mean_v, given_v), (mean_u, given_u) = map(self._flow.conditional_means, (first, second))
        mean, given = self._flow.conditional_covariances(first, second)
        moved = (given_v - mean_v) * (given_u - mean_u) + given - mean
        return self._flow.posterior * moved

    def entropy_and_gradient(self) -> tuple[float, FloatArray]:
        """Return the entropy of the paths in nats and its gradient in the scores, -Cov scores."""
        return self.entropy(), -self.covariance_product(self._possible_scores)

    def entropy_hessian_product(self, direction: npt.ArrayLike) -> FloatArray:
        """Return the derivative (A,) of the entropy's gradient along `direction` (A,)."""
        values = checks.direction_array("direction", direction, self.scores.shape)
        moved = self.third_order(self._possible_scores, values)
        return -self.covariance_product(values) - moved

    @property
    def _possible_scores(self) -> FloatArray:
        """The recentered scores, and 0 where the posterior is 0."""
        return np.where(self._flow.posterior > 0, self.recentered.scores, 0.0)

    def cross_entropy(self, other: Distribution[FloatArray]) -> float:
        """Return -E[log q(path)] in nats for a lattice q with the same arcs.

        Raises
        ------
        NotSupportedError
            `other` is not a lattice with the same arcs.
        """
        if not isinstance(other, Lattice) or other.graph is not self.graph:
            raise NotSupportedError(
                "cross entropy and KL are between lattices with the same arcs: make the other one "
                "by with_scores"
            )
        model = other.recentered
        return model._flow.log_z - float(self.inner(self.marginals(), model.scores))

    def sample(self, k: int, rng: Seed = None) -> list[IntArray]:
        """Return k independent strings, each an int64 array of ids."""
        return [self.string(path) for path in self.sample_paths(k, rng)]

    def sample_paths(self, k: int, rng: Seed = None) -> list[IntArray]:
        """Return k independent paths, each an int64 array of arc numbers."""
        k = positive_integer("k", k)
        return [steps[steps >= 0] for steps in self._flow.sample(k, checks.generator(rng))]

    def string(self, path: IntArray) -> IntArray:
        """Return the ids that a path, an array of arc numbers, reads."""
        labels = self.label[checks.index_array("path", path, self.num_arcs, (None,))]
        symbols: IntArray = labels[labels != NO_SYMBOL]
        return symbols

    def mode(self) -> IntArray:
        """Return the ids of the most probable string (not the string of the best path)."""
        return self.kbest(1)[0][0]

    def kbest(self, k: int, *, max_states: int = MAX_STATES) -> list[tuple[IntArray, float]]:
        """Return the k most probable strings as (ids, log_prob), best first.

        Exact: the paths of a string are summed.  Best-first search over prefixes; its upper bound
        is exact if the lattice is deterministic, and then the cost is O(A) plus O(k l d log) for
        strings of length l and d arcs per state.  With many paths per string the search is
        exponential in the worst case; beyond `max_states` prefixes it fails.

        Raises
        ------
        StateLimitError
        """
        k, log_z = positive_integer("k", k), self._flow.log_z  # raises if there is no path
        found = search.kbest(
            self.graph, self.label, self.recentered.scores, k, max_states=max_states
        )
        return [(ids, log_probability(total, log_z)) for ids, total in found]

    def best_path(self) -> tuple[IntArray, float]:
        """Return the most probable path as (arcs, log_prob)."""
        path, total = search.best_path(self.graph, self.recentered.scores)
        return path, log_probability(total, self._flow.log_z)

    def to_confusion_network(self, path: npt.ArrayLike | None = None) -> ConfusionNetwork:
        """Return the words of all paths, aligned to those of one path by edit distance.

        The expected number of times that a path reads a word is the sum of its probabilities over
        the slots.  Where two paths meet, both have the alignment of the least expected cost; where
        none meet before the end, as in an n-best list, each has the least number of edits.

        Parameters
        ----------
        path : arc numbers, optional
            The pivot.  By default, the most probable path.

        Returns
        -------
        ConfusionNetwork
            Its `slots` are those of `from_confusion_network`, and `pivot` the slots of the path.

        Notes
        -----
        O(A S) for S slots, of which there are up to nine for each word of the path.

        References
        ----------
        Xu, Povey, Mangu, Zhu (2011), "Minimum Bayes risk decoding and system combination based on a
        recursion for edit distance".

        Examples
        --------
        >>> words = Alphabet(["a", "an", "old", "cold"])
        >>> lattice = Lattice.from_nbest([["a", "cold"], ["an", "old"], ["old"]], [0.0] * 3, words)
        >>> for slot in lattice.to_confusion_network().slots:
        ...     print({word: round(float(np.exp(score)), 2) for word, score in slot})
        {'a': 0.33, 'an': 0.33, None: 0.33}
        {'old': 0.67, 'cold': 0.33}
        """
        arcs = self.best_path()[0] if path is None else path
        pivot = self.string(cast(IntArray, arcs))
        tables, of_pivot = slot_counts(self.graph, self.label, self._flow, pivot)
        kept = [k for k, table in enumerate(tables) if table or k in of_pivot]
        slots = []
        for k in kept:
            choices: dict[str | None, float] = {
                self.alphabet.symbols[i]: p for i, p in sorted(tables[k].items())
            }
            if (rest := 1.0 - sum(choices.values())) > 1e-12:
                choices[None] = rest
            ranked = sorted(choices.items(), key=lambda item: -round(item[1], 12))
            slots.append([(word, float(np.log(min(p, 1.0)))) for word, p in ranked])
        return ConfusionNetwork(slots, np.searchsorted(kept, of_pivot))

    def to_fst(self, log_weights: npt.ArrayLike | None = None) -> Fst:
        """Return the lattice as a pynini.Fst in log64; the weight of an arc is minus its score.

        `log_weights` (A,) replace the scores: `np.log(lattice.marginals())` writes the arc
        posteriors as costs.  The states are those of the lattice; arcs that represent final scores
        become final weights.
        """
        values = self.scores
        if log_weights is not None:
            values = checks.log_weights("log_weights", log_weights, self.scores.shape)
        symbols = ((0, EPSILON_SYMBOL), *enumerate(self.alphabet.symbols, start=1))
        return from_arrays(build.fst_arrays(self.graph, self.label, self.ends, values, symbols))

    @cached_property
    def _pushed(self) -> tuple["Lattice", float]:
        scores, offset = self.graph.pushed(self.scores)
        return (self if scores is self.scores else self.with_scores(scores)), offset

    @cached_property
    def _flow(self) -> Flow:
        return Flow.of(self.graph, self.recentered.scores)

    def _checked(self, name: str, structure: SequenceLike) -> IntArray:
        return self.alphabet.encode(structure, name=name)
