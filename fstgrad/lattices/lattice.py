"""Lattice: the log-linear distribution over the paths of an acyclic acceptor."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad import checks, plot
from fstgrad.alphabet import EPSILON as EPSILON_SYMBOL
from fstgrad.alphabet import Alphabet, SequenceLike
from fstgrad.automata.band import Band
from fstgrad.checks import FloatArray, IntArray, Seed, positive_integer
from fstgrad.distribution import ArrayDistribution, Distribution
from fstgrad.errors import InvalidInputError, NotSupportedError, renamed_arguments
from fstgrad.lattices import build, search
from fstgrad.lattices.graph import EPSILON, Flow, Graph
from fstgrad.lattices.loss import LatticeLoss, compose
from fstgrad.losses import MAX_STATES, Loss, Target
from fstgrad.openfst import Fst, from_arrays
from fstgrad.summary import short_repr


@dataclass(frozen=True, eq=False)
class Lattice(ArrayDistribution):
    """p(path) = exp(sum of the scores of its arcs) / Z over the paths of an acyclic acceptor.

    States 0 .. S-1 are in topological order; every state lies on a path from the start, 0, to the
    end, S - 1.  A path reads the labels of its arcs; arcs with label -1 (epsilon) read nothing.
    Several paths may read one string: its probability is their sum.  Made by
    `from_fst`, `from_text`, `from_arcs`, `from_nbest` or `from_confusion_network`.

    About strings: `log_prob`, `parts`, `nll`, `sample`, `kbest`, `mode`.  About paths:
    `log_partition`, `marginals` (arc posteriors), `expectation`, `covariance`, `entropy` (of the
    strings, too, if none has two paths), `cross_entropy`, `kl`, `sample_paths`, `best_path`.

    Attributes
    ----------
    alphabet : Alphabet
    graph : Graph
        The A arcs, sorted by source: `graph.source`, `graph.nextstate`.
    label : (A,) int64
        Id of the symbol that an arc reads, or -1.
    scores : (A,) float64
        Log-weights in nats (higher is likelier); -inf forbids.
    origin : (A,) int64
        Number of the arc among those that the lattice was made of; where an arc represents the
        final score of a state, it is that state's number.
    ends : (A,) bool
        Which arcs represent final scores.

    Notes
    -----
    Cost of log Z and the marginals: O(A).  Results of the passes are kept.

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
        """Look through the arrays and make them read-only."""
        checks.instance("graph", self.graph, Graph, "a Graph, as Lattice.from_arcs makes it")
        self.graph.check_arcs(self.label, self.scores, self.alphabet)
        checks.freeze(label=self.label, scores=self.scores, origin=self.origin, ends=self.ends)

    @classmethod
    @renamed_arguments(target="nextstate")
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
        """Return the lattice with these arcs, in any order; states on no path are left out.

        Parameters
        ----------
        source, nextstate : (A,) int
            States, any integers >= 0.
        label : (A,) int
            Ids of symbols, or -1 for epsilon.
        scores : (A,) float
            Log-weights in nats (higher is likelier); -inf forbids.
        alphabet : Alphabet
        final : states, or a mapping of states to their final scores
        start : int

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

        Its weights are costs: the score of an arc is minus its weight.  Where the FST has symbol
        tables, symbols are matched by name; otherwise label i + 1 is symbol i.

        Raises
        ------
        FstError
            It is not an acceptor, or it is cyclic.
        AlphabetError
            A label is not in the alphabet.
        """
        arcs, start, final = build.arcs_of_fst(fst, alphabet)
        return cls(alphabet, *build.ordered(arcs, start, final))

    @classmethod
    def from_text(cls, text: str, alphabet: Alphabet) -> "Lattice":
        r"""Return the lattice of an acceptor in AT&T text, its labels symbols of the alphabet.

        A line "source nextstate label [cost]" is an arc, "state [cost]" a final state; the first
        line's first state is the start; "<eps>" is epsilon.  The score of an arc is minus its cost.

        Examples
        --------
        >>> lattice = Lattice.from_text("0 1 a 0.5\n1 2 b\n1\n2", Alphabet("ab"))
        >>> lattice.num_paths
        2
        """
        arcs, start, final = build.arcs_of_text(text, alphabet)
        return cls(alphabet, *build.ordered(arcs, start, final))

    @classmethod
    def from_nbest(
        cls, hypotheses: Sequence[SequenceLike], scores: npt.ArrayLike, alphabet: Alphabet
    ) -> "Lattice":
        """Return the lattice of an n-best list: one path for each hypothesis.

        The first arc of path i is an epsilon arc that carries scores[i] and has `origin` i; the
        other arcs score 0.
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

        `slots` has for each position the alternatives (symbol, score), None for epsilon; arcs are
        numbered slot by slot.

        Examples
        --------
        >>> slots = [[("a", 0.0), ("b", -1.0)], [("b", 0.0), (None, 0.0)]]
        >>> Lattice.from_confusion_network(slots, Alphabet("ab")).num_paths
        4
        """
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
        """Number of paths, those of score -inf too."""
        return self.graph.num_paths

    def with_scores(self, scores: npt.ArrayLike) -> "Lattice":
        """Return the same arcs with other scores (A,); a compiled loss works for both."""
        array = checks.log_weights("scores", scores, (self.num_arcs,)).copy()
        checks.freeze(scores=array)
        twin = object.__new__(type(self))  # the arcs were looked through
        vars(twin).update({name: vars(self)[name] for name in self.__match_args__}, scores=array)
        return twin

    def scatter(self, scores: Any) -> Any:
        """Return scores of the arcs (A,) from scores in the order in which the arcs were given.

        What was not given (the symbols of an n-best list, final scores) keeps its score.

        Parameters
        ----------
        scores : (G,) array or PyTorch tensor
            Log-weights of the G arcs that the lattice was made of, those on no path too; for
            `from_nbest` one for each hypothesis.

        Returns
        -------
        (A,) : like `scores`; differentiable in a tensor, and the input of `fstgrad.torch`.

        Examples
        --------
        >>> arcs = [1, 0], [2, 1], [1, 0], [0.0, 0.0]  # the second one leaves the start
        >>> lattice = Lattice.from_arcs(*arcs, Alphabet("ab"), final=[2])
        >>> lattice.scatter(np.array([5.0, 3.0]))
        array([3., 5.])
        """
        given = build.Given(self.graph, self.label, self.origin, self.ends)
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

        It does not depend on the scores: compile once, use it for every `with_scores`.

        Parameters
        ----------
        loss : Loss
            Over the alphabet of the lattice.
        target : sequence, or an acyclic acceptor of several targets (see `loss.machine`)
        cap : float, optional
            Replaces the loss L by min(L, cap), in nats.
        band : int or (int, int), optional
            Keeps alignments near the diagonal, as in `Loss.compile`: L_k, nowhere below L.
        max_states : int
            Determinization stops at this number of states.

        Raises
        ------
        StateLimitError, InfeasibleError, InvalidInputError
        """
        checks.instance("loss", loss, Loss, "a Loss")
        if loss.alphabet != self.alphabet:
            raise InvalidInputError(
                f"loss is over {loss.alphabet!r}, the lattice over {self.alphabet!r}; "
                "make both with one Alphabet"
            )
        most = positive_integer("max_states", max_states)
        return compose(self.graph, self.label, loss, target, cap=cap, band=band, max_states=most)

    @property
    def near(self) -> "Lattice":
        """The same distribution by pushed scores if large ones cost digits, else itself.

        Examples
        --------
        >>> p = Lattice.from_arcs([0, 1], [1, 2], [0, 1], [-1e30, 0.5], Alphabet("ab"), final=[2])
        >>> p.near.scores.tolist()
        [0.5, 0.0]
        """
        return self._pushed[0]

    def log_partition(self) -> float:
        """Return log Z in nats, the log of the sum over all paths."""
        return self._flow.log_z + self._pushed[1]

    def marginals(self) -> FloatArray:
        """Return the arc posteriors (A,): the probability that a path passes each arc."""
        return self._flow.posterior.copy()

    def log_prob(self, structure: SequenceLike) -> float:
        """Return log p of a string in nats, the sum over its paths; -inf if it has none."""
        ids, scores = self._ids(structure), self.near.scores
        return search.log_sum_of_string(self.graph, self.label, scores, ids) - self._flow.log_z

    def parts(self, structure: SequenceLike) -> FloatArray:
        """Return the posteriors of the arcs given a string (A,): zeros and ones if it has one path.

        Raises
        ------
        InfeasibleError
            The string is not in the lattice.
        """
        return search.posterior_of_string(
            self.graph, self.label, self.near.scores, self._ids(structure)
        )[1]

    def expected_loss(self, b: LatticeLoss) -> float:
        """Return E[L] in nats; strings with L = +inf are left out."""
        checks.instance("b", b, LatticeLoss, "what compile returns")
        return b.risk(self.graph, self.near.scores)[0]

    def covariance_product(self, direction: npt.ArrayLike) -> FloatArray:
        """Return the derivative of the posteriors along a change of the scores."""
        values = checks.direction_array("direction", direction, self.scores.shape)
        mean, given = self._flow.conditional_means(values)
        return self._flow.posterior * (given - mean)

    def cross_entropy(self, other: Distribution[FloatArray]) -> float:
        """Return -E[log q(path)] in nats for a lattice q with the same arcs.

        Raises
        ------
        NotSupportedError
            The other one has other arcs.
        """
        if not isinstance(other, Lattice) or other.graph is not self.graph:
            raise NotSupportedError(
                "cross entropy and KL are between lattices with the same arcs: make the other one "
                "by with_scores"
            )
        near = other.near
        return near._flow.log_z - float(self.inner(self.marginals(), near.scores))

    def sample(self, k: int, rng: Seed = None) -> list[IntArray]:
        """Return k independent strings, each an array of ids."""
        return [self.string(path) for path in self.sample_paths(k, rng)]

    def sample_paths(self, k: int, rng: Seed = None) -> list[IntArray]:
        """Return k independent paths, each an array of arcs."""
        k = positive_integer("k", k)
        return [steps[steps >= 0] for steps in self._flow.sample(k, checks.generator(rng))]

    def string(self, path: IntArray) -> IntArray:
        """Return the ids that a path, an array of arcs, reads."""
        labels = self.label[checks.index_array("path", path, self.num_arcs, (None,))]
        symbols: IntArray = labels[labels != EPSILON]
        return symbols

    def mode(self) -> IntArray:
        """Return the string of the highest probability (not that of the best path)."""
        return self.kbest(1)[0][0]

    def kbest(self, k: int, *, max_states: int = MAX_STATES) -> list[tuple[IntArray, float]]:
        """Return the k strings of the highest probability as (ids, log_prob), best first.

        Exact: paths of one string are added up.  Best-first search over prefixes with an upper
        bound that is exact if the lattice is deterministic; there the cost is O(A) and
        O(k l d log) for k strings of length l and d arcs per state.  With many paths per string it
        is exponential in the worst case and stops after `max_states` prefixes.

        Raises
        ------
        StateLimitError
        """
        k = positive_integer("k", k)
        found = search.kbest(self.graph, self.label, self.near.scores, k, max_states=max_states)
        return [(ids, float(total - self._flow.log_z)) for ids, total in found]

    def best_path(self) -> tuple[IntArray, float]:
        """Return the path of the highest probability as (arcs, log_prob)."""
        path, total = search.best_path(self.graph, self.near.scores)
        return path, total - self._flow.log_z

    def to_fst(self, log_weights: npt.ArrayLike | None = None) -> Fst:
        """Return the lattice as a pynini.Fst in log64; the weight of an arc is minus its score.

        `log_weights` (A,) replace the scores: `np.log(lattice.marginals())` writes the arc
        posteriors as costs.  States are those of the lattice; the arcs of final scores become final
        weights.
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
        return Flow.of(self.graph, self.near.scores)

    def _ids(self, structure: SequenceLike) -> IntArray:
        return self.alphabet.encode(structure, name="structure")
