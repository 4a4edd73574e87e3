"""Measure how well costs rank the right candidate, and learn costs that rank it first."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from fstgrad.core.alphabet import Alphabet, SequenceLike
from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    Seed,
    generator,
    one_of,
    positive_integer,
    positive_number,
)
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import batch, rows_of
from fstgrad.core.short_repr import short_repr
from fstgrad.costs.learned_costs import LearnedCosts
from fstgrad.costs.pairs import Pairs, check_aligned
from fstgrad.costs.parameter_tying import END, ParameterTying, Tie
from fstgrad.costs.transducer import PairTransducer, TransducerSource, pair_transducer

Semiring = Literal["tropical", "probability"]
Question = tuple[SequenceLike, int, Sequence[SequenceLike]]
_SAME = 1e-9  # losses that differ by less are equal


class Questions(NamedTuple):
    """Hypotheses with their candidates, all in one list of pairs.

    Attributes
    ----------
    pairs : Pairs, each hypothesis with each of its candidates.
    first : (N + 1,) int64; hypothesis n has the pairs first[n] .. first[n + 1].
    right : (N,) int64, the pair of each right candidate.
    """

    pairs: Pairs
    first: IntArray
    right: IntArray

    def __repr__(self) -> str:
        return short_repr(self)

    @classmethod
    def encode(cls, alphabet: Alphabet, questions: Iterable[Question]) -> "Questions":
        """Return questions (hypothesis, index of the right candidate, candidates) as pairs.

        Raises
        ------
        InvalidInputError
            There is no question, or a question has another form or no candidate of that index.
        AlphabetError
            A symbol is not in the alphabet.
        """
        rows: list[tuple[Any, Any]] = []
        first, right = [0], []
        for name, fields in rows_of("questions", questions):
            if len(fields) != 3:
                raise InvalidInputError(
                    f"{name} has {len(fields)} fields; a question is (hypothesis, number "
                    "of the right candidate, candidates)"
                )
            hypothesis = fields[0]
            number = positive_integer(f"{name}[1]", fields[1], minimum=0)
            candidates = batch(f"{name}[2]", fields[2])
            if not 0 <= number < len(candidates):
                raise InvalidInputError(
                    f"{name}[1], the number of the right candidate, is {number}; the "
                    f"question has {len(candidates)} candidates, counted from 0"
                )
            right.append(len(rows) + number)
            rows += [(hypothesis, candidate) for candidate in candidates]
            first.append(len(rows))
        pairs = Pairs.encode(alphabet, rows, name="questions")
        return cls(pairs, np.array(first), np.array(right))


class Ranking(NamedTuple):
    """How well costs rank the right candidates, with bootstrapped 95 % intervals.

    Attributes
    ----------
    ranks : (N,) float64, the ranks of the right candidates from 1; equal costs share a mean rank.
    reciprocal : (value, lower, upper), the mean reciprocal rank.
    at_1, at_5 : (value, lower, upper), the shares of right candidates of rank <= 1 and <= 5.
    """

    ranks: FloatArray
    reciprocal: tuple[float, float, float]
    at_1: tuple[float, float, float]
    at_5: tuple[float, float, float]

    def __repr__(self) -> str:
        return short_repr(self)


def losses_of(
    transducer: PairTransducer, pairs: Pairs, cost: FloatArray, semiring: Semiring
) -> FloatArray:
    """Return the losses (N,) of pairs in nats: the cheapest alignment, or -log of the sum."""
    if semiring == "tropical":
        return -transducer.best_counts(pairs, -cost)[0]
    return -transducer.log_sums(pairs, -cost)


def ranks(questions: Questions, losses: FloatArray) -> FloatArray:
    """Return the rank (N,) of each right candidate, from 1; equal losses share a mean rank."""
    number = np.repeat(np.arange(len(questions.right)), np.diff(questions.first))
    right_losses = losses[questions.right][number]
    with np.errstate(invalid="ignore"):
        is_equal = (losses == right_losses) | (np.abs(losses - right_losses) <= _SAME)
    before = np.bincount(number, (losses < right_losses) & ~is_equal)
    return np.asarray(1.0 + before + (np.bincount(number, is_equal) - 1.0) / 2.0)


def ranking(ranks: FloatArray, *, rng: Seed = 0, resamples: int = 1000) -> Ranking:
    """Return the measures of ranks (N,) with bootstrapped 95 % intervals."""
    measures = (1.0 / ranks, ranks <= 1.0, ranks <= 5.0)
    draws = generator(rng).integers(0, len(ranks), size=(resamples, len(ranks)))
    values = [bootstrap_interval(np.asarray(values, dtype=float), draws) for values in measures]
    return Ranking(ranks, *values)


def bootstrap_interval(values: FloatArray, draws: IntArray) -> tuple[float, float, float]:
    """Return the mean of values (N,), and its 95 % interval over `draws` (resamples, N) of them."""
    means = values[draws].mean(axis=1)
    lower, upper = np.quantile(means, [0.025, 0.975])
    return float(values.mean()), float(lower), float(upper)


def nearest_words(
    texts: Sequence[Sequence[str]], dictionary: Sequence[Sequence[str]], number: int
) -> list[list[int]]:
    """Return, for each text, the indices of up to `number` most similar words of a dictionary.

    The similarity is Dice's coefficient 2 |A and B| / (|A| + |B|) of their sets of bigrams, with
    marks at both ends.  Ties go to the first in the dictionary.  Words that share no bigram are
    left out.  O(shared bigrams).
    """
    from scipy.sparse import csr_array

    column: dict[tuple[str, str], int] = {}

    def table(rows: Sequence[Sequence[str]]) -> Any:
        sets = [{*zip(("", *row), (*row, ""), strict=True)} for row in rows]
        index = [column.setdefault(gram, len(column)) for grams in sets for gram in sorted(grams)]
        first = np.concatenate([[0], np.cumsum([len(grams) for grams in sets])])
        return index, first

    of_words, of_texts = table(dictionary), table(texts)
    width = len(column)
    left = csr_array((np.ones(len(of_texts[0])), *of_texts), shape=(len(texts), width))
    right = csr_array((np.ones(len(of_words[0])), *of_words), shape=(len(dictionary), width))
    shared = (left @ right.T).tocsr()
    sizes = np.diff(right.indptr)
    result = []
    for n in range(len(texts)):
        row = slice(shared.indptr[n], shared.indptr[n + 1])
        words, common = shared.indices[row], shared.data[row]
        dice = 2 * common / (sizes[words] + left.indptr[n + 1] - left.indptr[n])
        order = np.lexsort((words, -dice))[:number]
        result.append([int(k) for k in words[order]])
    return result


class RankingFit(LearnedCosts):
    """Costs learned to rank the right candidate first; attributes as in `LearnedCosts`."""

    __repr__ = short_repr


def fit_ranking(
    source: TransducerSource | LearnedCosts,
    questions: Iterable[Question],
    alphabet: Alphabet | None = None,
    *,
    tie: Tie = "pair",
    objective: Literal["softmax", "hinge"] = "softmax",
    margin: float = 0.0,
    semiring: Semiring = "probability",
    penalty: float = 1e-2,
    max_iter: int = 50,
) -> RankingFit:
    """Learn the costs that rank the right candidate of each question first.

    L(y, c) is the loss of a hypothesis y and a candidate c; r is the right candidate.  m is
    `margin` for c other than r, and 0 for r.  The objective is

    - softmax: the mean of L(y, r) + log sum_c exp(m - L(y, c)), which is -log of the probability of
      r if margin = 0, and the softmax margin otherwise;
    - hinge: the mean of the sum over c of max(0, m + L(y, r) - L(y, c)),

    plus penalty / 2 times the sum of the squared changes of the costs.  The gradient of L with
    respect to the costs is the counts of the arcs: expected counts over all alignments
    (semiring="probability", where the gradient is exact everywhere), or counts along the best
    alignment ("tropical").  Costs stay >= 0, and those of ending stay fixed.

    Parameters
    ----------
    source : pynini.Fst, TransducerLoss, grammar, or the result of a fit
        The initial costs.
    questions : iterable of (hypothesis, index of the right candidate, candidates)
    alphabet, tie : as in `fit_costs`
    objective, semiring : as above
    margin : float >= 0, in nats
    penalty : float >= 0
    max_iter : int
        Largest number of iterations of L-BFGS.

    Returns
    -------
    RankingFit
        The learned costs as a transducer, a loss and a table.

    Raises
    ------
    InfeasibleError
        The transducer has no alignment with the right candidate of a question.
    InvalidInputError, AlphabetError
        An argument is not as above, or a symbol is not in the alphabet.
    NotSupportedError, FstError, MemoryLimitError
        See `pair_transducer` and `PairTransducer.log_sums`.

    Examples
    --------
    >>> import fstgrad as fg
    >>> loss = fg.EditDistance(fg.Alphabet("abc"))
    >>> fit = fg.fit_ranking(loss, [("ab", 1, ["ac", "bb"]), ("ca", 0, ["cb", "ba"])])
    >>> learned = fit.loss("probability")
    >>> learned("ab", "bb") < learned("ab", "ac")
    True
    """
    one_of("objective", objective, ("softmax", "hinge"))
    one_of("semiring", semiring, ("tropical", "probability"))
    penalty = positive_number("penalty", penalty, allow_zero=True)
    margin = positive_number("margin", margin, allow_zero=True)
    max_iter = positive_integer("max_iter", max_iter)
    if isinstance(source, LearnedCosts):
        transducer, initial_cost = source.pair_transducer, source.cost
    else:
        transducer = pair_transducer(source, alphabet)
        initial_cost = transducer.cost
    ties = ParameterTying.of(transducer, tie, "nothing")
    encoded = Questions.encode(transducer.alphabet, questions)
    problem = _RankingProblem(
        transducer, ties, initial_cost, encoded, objective, margin, semiring, penalty
    )
    cost = problem.solved(max_iter)
    counts = _counts(transducer, encoded.pairs, cost, semiring, np.ones(len(encoded.pairs)))[1]
    no_prior = np.zeros(len(ties.cell_class))
    return RankingFit(transducer, ties, cost, initial_cost, counts, no_prior)


class _RankingProblem(NamedTuple):
    """The objective of `fit_ranking` as a function of the changes of the classes' costs."""

    pair_transducer: PairTransducer
    ties: ParameterTying
    initial_cost: FloatArray
    questions: Questions
    objective: str
    margin: float
    semiring: Semiring
    penalty: float

    def solved(self, max_iter: int) -> FloatArray:
        """Return the costs (A + S,) that minimize the objective."""
        from scipy.optimize import minimize

        ties = self.ties
        least = np.full(len(ties.names), np.inf)
        np.minimum.at(least, ties.class_of, self.initial_cost[ties.events])
        fixed = np.array([name.startswith(END) for name in ties.names])
        bounds = [
            (0.0, 0.0) if is_fixed or not np.isfinite(low) else (min(-low, 0.0), None)
            for low, is_fixed in zip(least, fixed, strict=True)
        ]
        optimum = minimize(
            self.value,
            np.zeros(len(ties.names)),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            options={"maxiter": max_iter},
        )
        return self.costs(optimum.x)

    def costs(self, change: FloatArray) -> FloatArray:
        """Return the costs (A + S,) after adding `change` (K,) to the costs of the classes."""
        cost = self.initial_cost.copy()
        cost[self.ties.events] += change[self.ties.class_of]
        return cost

    def value(self, change: FloatArray) -> tuple[float, FloatArray]:
        """Return the objective and its gradient (K,) with respect to `change` (K,)."""
        ties, (pairs, first, right) = self.ties, self.questions
        cost = self.costs(change)
        losses = losses_of(self.pair_transducer, pairs, cost, self.semiring)
        number = np.repeat(np.arange(len(right)), np.diff(first))
        alphabet = self.pair_transducer.alphabet
        check_aligned("questions", pairs, right, np.isinf(losses[right]), alphabet)
        margin = np.full(len(losses), self.margin)
        margin[right] = 0.0
        score = margin + losses[right][number] - losses
        if self.objective == "softmax":
            top = np.maximum.reduceat(score, first[:-1])
            total = np.add.reduceat(np.exp(score - top[number]), first[:-1])
            value = float((top + np.log(total)).mean())
            share = np.exp(score - (top + np.log(total))[number]) / len(right)
        else:
            share = (score > 0).astype(np.float64) / len(right)
            value = float(np.maximum(score, 0.0).sum() / len(right))
        mass = -share
        mass[right] += np.bincount(number, share, minlength=len(right))
        counts = _counts(self.pair_transducer, pairs, cost, self.semiring, mass)[1]
        slope = np.bincount(ties.class_of, counts[ties.events], minlength=len(ties.names))
        return value + self.penalty / 2 * float(change @ change), slope + self.penalty * change


def _counts(
    transducer: PairTransducer, pairs: Pairs, cost: FloatArray, semiring: Semiring, mass: FloatArray
) -> tuple[FloatArray, FloatArray]:
    if semiring == "tropical":
        return transducer.best_counts(pairs, -cost, mass)
    return transducer.expected_counts(pairs, -cost, mass)
