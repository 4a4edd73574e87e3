import functools
import itertools

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

import fstgrad as fg
from fstgrad.learning import vocabulary
from fstgrad.learning.features import InputFeatures, PositionalQGrams, QGramCounts
from tests.oracles import strings as oracle

ABC = fg.Alphabet("abc")
N = len(ABC)


def psi(x, z, s):
    """Three features that look at everything: input, context, position."""
    before = sum(symbol is None for symbol in z)
    return np.array([float(z[-1] == x[s % len(x)]), 0.5 * before, s * (z[0] == "a")])


def sparse_psi(x, z, s):
    return dict(enumerate(psi(x, z, s)))


def random_matrix(x, length, *, order, size):
    rows = length * (N + 1) ** (order - 1) * N
    return random_array((rows, size), density=0.2, rng=np.random.default_rng(length), format="csr")


def families(order):
    return [
        QGramCounts(ABC, order),
        QGramCounts(ABC, order, boundary=True),
        PositionalQGrams(ABC, order, max_length=6),
        InputFeatures.from_function(ABC, order, size=3, psi=psi),
        InputFeatures(
            ABC, order, size=5, matrix=functools.partial(random_matrix, order=order, size=5)
        ),
    ]


CASES = [
    pytest.param(f, id=f"{type(f).__name__}{i}-{order}")
    for order in (1, 2, 3)
    for i, f in enumerate(families(order))
]


@pytest.mark.parametrize("features", CASES)
@pytest.mark.parametrize("length", [1, 2, 5])
def test_gradient_is_the_adjoint_of_scores(features, length):
    rng = np.random.default_rng(length)
    w = rng.normal(size=features.shape)
    scores = features.scores(w, "cab", length)
    assert scores.shape == (length,) + (N + 1,) * (features.order - 1) + (N,)
    table = rng.normal(size=scores.shape)
    gradient = features.gradient(table, "cab")
    assert gradient.shape == features.shape
    assert np.sum(gradient * w) == pytest.approx(np.sum(table * scores), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("features", CASES)
def test_gradient_in_w_is_the_central_difference(features):
    y, x, step = "cabb", "bca", 1e-5
    losses = [oracle.edit_distance(z, tuple(ABC.encode(y))) for z in oracle.all_strings(N, len(y))]

    def objective(w):
        return oracle.softmax_margin(features.scores(w, x, len(y)), tuple(ABC.encode(y)), losses)

    rng = np.random.default_rng(4)
    w = rng.normal(size=features.shape)
    gradient = features.gradient(objective(w)[1], x)
    for index in itertools.islice(np.ndindex(*w.shape), 0, None, max(1, w.size // 6)):
        ends = []
        for sign in (1, -1):
            moved = w.copy()
            moved[index] += sign * step
            ends.append(objective(moved)[0])
        assert gradient[index] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-8)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_counts_are_of_whole_qgrams(order):
    features = QGramCounts(ABC, order)
    counts = features.counts("abab")
    grams = [tuple(ABC.encode("abab"[i : i + order])) for i in range(5 - order)]
    for z in np.ndindex(*counts.shape):
        assert counts[z] == grams.count(z)
    w = np.arange(N**order, dtype=float).reshape(features.shape)
    total = oracle.score(tuple(ABC.encode("abab")), features.scores(w, None, 4))
    assert total == sum(w[z] for z in grams)


def test_boundary_counts_the_first_symbols_too():
    counts = QGramCounts(ABC, 2, boundary=True).counts("ab")
    assert counts.sum() == 2
    assert counts[N, 0] == 1  # a, with nothing before it
    assert counts[0, 1] == 1  # ab


def test_counts_shorter_than_a_qgram_are_zero():
    assert not QGramCounts(ABC, 3).counts("ab").any()


def test_positional_weights_beyond_the_string_get_no_gradient():
    features = PositionalQGrams(ABC, 1, max_length=4)
    gradient = features.gradient(np.ones((2, N)), None)
    np.testing.assert_array_equal(gradient, [[1] * N, [1] * N, [0] * N, [0] * N])


def test_function_may_return_a_mapping_or_an_array():
    dense, sparse = (InputFeatures.from_function(ABC, 2, size=3, psi=f) for f in (psi, sparse_psi))
    w = [1.0, -2.0, 3.0]
    np.testing.assert_array_equal(dense.scores(w, "ab", 3), sparse.scores(w, "ab", 3))
    # s = 1, previous a, current b = x[1]: 1 * 1 + (-2) * 0 + 3 * 1
    assert dense.scores(w, "ab", 3)[1, 0, 1] == 1 + 3
    # s = 0, nothing before, current a = x[0]: 1 * 1 + (-2) * 0.5 + 3 * 0
    assert dense.scores(w, "ab", 3)[0, N, 0] == 1 - 1


@pytest.mark.parametrize(
    "call, said",
    [
        (lambda: QGramCounts(ABC, 0), "order is 0"),
        (lambda: QGramCounts(ABC, 2).scores(np.zeros(9), None, 3), r"w has shape \(9,\)"),
        (lambda: QGramCounts(ABC, 1).scores([0, np.nan, 0], None, 3), r"w\[1\] is nan"),
        (lambda: QGramCounts(ABC, 1).scores([0, 0, 0], None, 0), "length is 0"),
        (lambda: QGramCounts(ABC, 2).gradient(np.zeros((4, 3)), None), r"table has shape \(4, 3\)"),
        (
            lambda: PositionalQGrams(ABC, 1, max_length=2).gradient(np.zeros((3, N)), None),
            "larger max_length",
        ),
        (
            lambda: InputFeatures(
                ABC, 1, size=2, matrix=lambda x, l: csr_array(np.zeros((l, 2)))
            ).scores([1, 2], "a", 3),
            r"matrix\(x, 3\) has shape \(3, 2\); the shape must be \(9, 2\)",
        ),
        (
            lambda: InputFeatures.from_function(
                ABC, 1, size=2, psi=lambda x, z, s: {2: 1.0}
            ).scores([1, 2], "a", 3),
            "psi gave the feature 2",
        ),
    ],
)
def test_bad_input_names_argument_and_remedy(call, said):
    with pytest.raises(fg.InvalidInputError, match=said):
        call()


def test_lengths_whose_names_pass_the_memory(monkeypatch):
    monkeypatch.setattr(vocabulary, "memory_limit", lambda: 2**10)
    with pytest.raises(fg.MemoryLimitError, match="the lengths of y sum to 1,000,000"):
        vocabulary.read_inputs([("ab", 1_000_000)])
    assert vocabulary.read_inputs([("ab", 1)]) == [(("a", "b"), 1)]
