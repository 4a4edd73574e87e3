"""Costs learned by ranking, their gradients, and how rankings are measured."""

import math
import random

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.costs import Pairs, loss_gradient, pair_transducer, softmax_margin_gradient
from fstgrad.costs.parameter_tying import ParameterTying
from fstgrad.costs.ranking import Questions, _RankingProblem, nearest_words, ranking, ranks
from tests.oracles import costs as oracle

ABC = fg.Alphabet("abc")


def questions(rng, count=6):
    def word():
        return "".join(rng.choice(list("abc"), rng.integers(1, 5)))

    return [(word(), int(rng.integers(0, 4)), [word() for _ in range(4)]) for _ in range(count)]


@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("objective", ["softmax", "hinge"])
@pytest.mark.parametrize("semiring", ["probability", "tropical"])
def test_the_gradient_is_that_of_differences(objective, semiring, margin):
    rng = np.random.default_rng(1)
    transducer = pair_transducer(fg.EditDistance(ABC))
    ties = ParameterTying.of(transducer, "pair", "nothing")
    # costs at random, so that no two alignments are the best and no hinge is at its corner
    first = transducer.cost + rng.uniform(0.1, 0.9, size=len(transducer.cost))
    asked = Questions.encode(ABC, questions(rng))
    problem = _RankingProblem(transducer, ties, first, asked, objective, margin, semiring, 0.01)
    change = rng.uniform(0.0, 0.1, size=len(ties.names))
    value, slope = problem.value(change)
    assert value > 0.005 * float(change @ change)  # some answer is not the nearest
    for k in range(len(change)):
        step = np.zeros(len(change))
        step[k] = 1e-5
        difference = problem.value(change + step)[0] - problem.value(change - step)[0]
        assert slope[k] == pytest.approx(difference / 2e-5, abs=1e-7)


@pytest.mark.parametrize("objective", ["softmax", "hinge"])
@pytest.mark.parametrize("semiring", ["probability", "tropical"])
def test_costs_learn_to_rank(objective, semiring):
    """`a` is written for `b`, never for `c`, and that is what the costs come to say."""
    asked = [("abc", 0, ["bbc", "cbc"]), ("ca", 1, ["cc", "cb"]), ("aa", 1, ["ca", "ba"])]
    loss = fg.EditDistance(ABC)
    fit = fg.fit_ranking(loss, asked, objective=objective, margin=0.5, semiring=semiring)
    learned = fit.loss(semiring)
    for y, right, candidates in asked:
        values = [learned(y, candidate) for candidate in candidates]
        assert np.argmin(values) == right
        assert values[right] < values[1 - right] - 0.1
    cost = {row.name: row.cost for row in fit.rows}
    assert cost["a -> b"] < cost["a -> c"]
    assert fit.changes(1)[0].cost != fit.changes(1)[0].was
    assert (fit.cost >= 0).all()
    again = fg.fit_ranking(fit, asked, semiring=semiring, objective=objective, max_iter=5)
    assert again.initial_cost is fit.cost


def test_ranks_and_intervals():
    asked = Questions.encode(ABC, [("a", 0, ["a", "b", "c"]), ("a", 1, ["b", "c"])])
    assert ranks(asked, np.array([1.0, 0.5, 2.0, 3.0, 3.0])).tolist() == [2.0, 1.5]
    assert ranks(asked, np.array([np.inf, 0.5, np.inf, np.inf, 1.0])).tolist() == [2.5, 1.0]
    found = ranking(np.array([1.0, 2.0, 4.0, 8.0] * 25))
    assert found.reciprocal[0] == pytest.approx((1 + 1 / 2 + 1 / 4 + 1 / 8) / 4)
    assert found.at_1[0] == 0.25
    assert found.at_5[0] == 0.75
    error = math.sqrt(0.25 * 0.75 / 100)  # 1.96 of these on either side, as N grows
    assert found.at_1[1] == pytest.approx(0.25 - 1.96 * error, abs=0.03)
    assert found.at_1[2] == pytest.approx(0.25 + 1.96 * error, abs=0.03)


def test_nearest_words_share_most_bigrams():
    words = ["cat", "cart", "dog", "art", "cat"]
    assert nearest_words(["cat", "xyz"], words, 3) == [[0, 4, 1], []]


def test_nearest_words_are_those_of_largest_dice_coefficient():
    def dice(x, y):
        x, y = ({*zip(("", *word), (*word, ""), strict=True)} for word in (x, y))
        return 2 * len(x & y) / (len(x) + len(y))

    rng = random.Random(0)
    words, texts = ([random_word(rng) for _ in range(n)] for n in (40, 20))
    for text, found in zip(texts, nearest_words(texts, words, 5), strict=True):
        order = sorted(range(len(words)), key=lambda k: (-dice(text, words[k]), k))
        assert found == [k for k in order if dice(text, words[k]) > 0][:5]


def random_word(rng):
    return "".join(rng.choices("abc", k=rng.randint(1, 6)))


def test_gradients_of_a_loss():
    loss = fg.EditDistance(ABC, substitute_cost=0.9)
    assert loss_gradient(loss, "ab", "cb") == {"a -> c": 1.0, "b -> b": 1.0, "(end)": 1.0}
    rational = fg.TransducerLoss(loss.transducer, ABC, semiring="probability")
    found = loss_gradient(rational, "ab", "cb", tie="arc")
    assert math.fsum(v for k, v in found.items() if k.startswith("(end)")) == pytest.approx(1.0)
    transducer = pair_transducer(rational)
    pair = Pairs.encode(ABC, [("ab", "cb")])
    for event in range(transducer.num_arcs):
        step = np.zeros(len(transducer.cost))
        step[event] = 1e-5
        up, down = (-transducer.log_sums(pair, -transducer.cost + s)[0] for s in (-step, step))
        name = next((k for k in found if k.endswith(f"({event})")), None)
        assert found.get(name, 0.0) == pytest.approx((up - down) / 2e-5, abs=1e-8)


@pytest.mark.parametrize("semiring", ["tropical", "probability"])
def test_the_softmax_margin_in_the_costs(semiring):
    """Against central differences of the exact objective, within the error of the samples."""
    rng = np.random.default_rng(3)
    abc = fg.Alphabet("ab")
    scores, gold = rng.normal(size=(3, 3, 2)), "aba"
    transducer = pair_transducer(fg.EditDistance(abc))
    ties = ParameterTying.of(transducer, "pair", "nothing")
    cost = transducer.cost + np.append(rng.uniform(0.2, 0.9, size=transducer.num_arcs), 0.0)
    loss = fg.TransducerLoss(transducer.to_fst(cost), abc, semiring=semiring)
    found = softmax_margin_gradient(scores, gold, loss, samples=4000, rng=1)
    for k, name in enumerate(found.names[:-1]):
        step = np.zeros(len(cost))
        step[ties.events[ties.class_of == k]] = 1e-4
        values = [
            fg.softmax_margin(
                scores,
                gold,
                fg.TransducerLoss(transducer.to_fst(c), abc, semiring=semiring).compile(gold),
            )[0]
            for c in (cost + step, cost - step)
        ]
        exact = (values[0] - values[1]) / 2e-4
        assert abs(found.gradient[k] - exact) <= 4.5 * found.standard_error[k] + 1e-3, name


@pytest.mark.parametrize(
    "said, settings",
    [
        ("questions is empty", {"questions": []}),
        (r"question has 1 candidates", {"questions": [("a", 1, ["a"])]}),
        ("objective is 'x'", {"objective": "x"}),
        ("penalty is -1", {"penalty": -1}),
        (r"questions\[0\] is 'a' against 'ab'", {"source": fg.Hamming(ABC)}),
    ],
)
def test_bad_input(said, settings):
    given = {"source": fg.EditDistance(ABC), "questions": [("a", 0, ["ab", "b"])]} | settings
    with pytest.raises(fg.FstgradError, match=said):
        fg.fit_ranking(given.pop("source"), given.pop("questions"), **given)


def test_a_penalty_of_zero_leaves_the_costs_free():
    asked = [("ab", 1, ["ac", "bb"]), ("ca", 0, ["cb", "ba"])]
    free = fg.fit_ranking(fg.EditDistance(ABC), asked, penalty=0)
    held = fg.fit_ranking(fg.EditDistance(ABC), asked, penalty=10.0)
    moved = [np.abs(fit.cost - fit.initial_cost).sum() for fit in (free, held)]
    assert moved[0] > moved[1] > 0


def test_a_hinge_without_margin_corrects_what_is_wrong():
    asked = [("abc", 0, ["aca", "abb"])]
    loss = fg.EditDistance(ABC, substitute_cost=1.5)
    before = [loss("abc", candidate) for candidate in asked[0][2]]
    assert before[0] > before[1]
    learned = fg.fit_ranking(loss, asked, objective="hinge", semiring="tropical").loss("tropical")
    assert learned("abc", "aca") <= learned("abc", "abb") + 0.1


@pytest.mark.parametrize("margin", [0.0, 0.5])
@pytest.mark.parametrize("semiring", ["probability", "tropical"])
def test_objectives_are_their_definitions(semiring, margin):
    """Right candidates at any place, and at the first one, of questions of several sizes."""
    rng = np.random.default_rng(3)
    asked = [(y, n % (1 + i), own[: 1 + i]) for i, (y, n, own) in enumerate(questions(rng, 4))]
    transducer = pair_transducer(fg.EditDistance(ABC))
    symbols = (None, *range(3))
    arcs = [(0, a, b, float(a != b), 0) for a in symbols for b in symbols if (a, b) != (None, None)]

    def loss_of(y, c):
        ids = (ABC.encode(text).tolist() for text in (y, c))
        weights = [weight for weight, _ in oracle.paths((0, arcs, {0: 0.0}), *ids)]
        return -np.log(max(weights) if semiring == "tropical" else sum(weights))

    softmax = hinge = 0.0
    for y, right, candidates in asked:
        losses = np.array([loss_of(y, c) for c in candidates])
        away = np.where(np.arange(len(candidates)) == right, 0.0, margin)
        softmax += losses[right] + np.logaddexp.reduce(away - losses)
        hinge += np.maximum(away + losses[right] - losses, 0.0).sum()
    ties = ParameterTying.of(transducer, "pair", "nothing")
    for objective, total in (("softmax", softmax), ("hinge", hinge)):
        encoded = Questions.encode(ABC, asked)
        problem = _RankingProblem(
            transducer, ties, transducer.cost, encoded, objective, margin, semiring, 2.0
        )
        change = np.zeros(len(ties.names))
        assert problem.value(change)[0] == pytest.approx(total / len(asked), rel=1e-12)
        held = np.array([name.startswith("(end)") for name in ties.names])
        change[held] = 0.5  # ending costs every alignment as much more
        assert problem.value(change)[0] == pytest.approx(
            total / len(asked) + 0.25 * held.sum(), rel=1e-12
        )
