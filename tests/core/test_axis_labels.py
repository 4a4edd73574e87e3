"""Tables with labels: in the order of the alphabet, or refused."""

import contextlib

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.losses import transducers
from tests.tables import Column, Frame

ACGT = fg.Alphabet("ACGT")
COSTS = 0.1 * np.arange(16.0).reshape(4, 4)  # cost[y, target]
TURNED = [2, 0, 3, 1]  # G A T C
LABELS = ["G", "A", "T", "C"]


def turned(table, labels=LABELS):
    return Frame(table[np.ix_(TURNED, TURNED)], labels, labels)


def affine(matrix):
    return fg.GlobalAlignment(ACGT, matrix, gap_open=9.0)


@pytest.mark.parametrize(
    "make, sign",
    [
        (lambda table: fg.EditDistance(ACGT, confusion=table), 1),
        (lambda table: fg.Hamming(ACGT, table), 1),
        (affine, -1),
        (lambda table: fg.SmithWaterman(ACGT, matrix=table, gap_open=9.0), -1),
    ],
)
def test_labels_are_in_the_order_of_the_alphabet(make, sign):
    for table in (COSTS, turned(COSTS), Frame(COSTS)):
        assert make(table)("C", "G") == pytest.approx(sign * 0.6, abs=1e-10)  # row 1, column 2
    more = Frame(np.pad(COSTS, (0, 1)), [*"ACGTN"], [*"ACGTN"])
    assert make(more)("C", "G") == pytest.approx(sign * 0.6, abs=1e-10)
    for label in ("", "<eps>", "@0@", "@_EPSILON_SYMBOL_@", "\u03b5", None, np.nan):
        for rows, columns in (([*"ACGT", label], [*"ACGTN"]), ([*"ACGTN"], [*"ACGT", label])):
            with pytest.raises(fg.AlphabetError, match=f"has {label!r}, which stands for no symb"):
                make(Frame(np.pad(COSTS, (0, 1)), rows, columns))
    for labels in ([*"ACGU"], [*"AACG"], [*"acgt"]):
        with pytest.raises(fg.AlphabetError, match=f"{', '.join(labels)}.*A, C, G, T"):
            make(Frame(COSTS, labels, labels))
    with pytest.raises(fg.AlphabetError, match="columns G, A, T, C, the alphabet is A, C, G, T"):
        make(Frame(COSTS, columns=LABELS))
    assert make(Frame(COSTS, columns=[*"ACGT"]))("C", "G") == pytest.approx(sign * 0.6, abs=1e-10)


def test_epsilon_is_a_letter_in_greek_and_words_are_no_missing_labels():
    names = ["\u03b1", "\u03b2", "\u03b5", "\u03b3"]
    for alphabet in (names[:2], names):
        loss = fg.EditDistance(fg.Alphabet(alphabet), confusion=Frame(COSTS, names, names))
        assert loss([names[0]], [names[1]]) == 0.1
    words = ["nan", "None", "a", "b"]
    loss = fg.EditDistance(fg.Alphabet(words), confusion=Frame(COSTS, words, words))
    assert loss(["nan"], ["None"]) == 0.1
    with pytest.raises(fg.AlphabetError, match="insert_cost= and delete_cost=, or rules"):
        fg.EditDistance(ACGT, confusion=Frame(np.zeros((5, 5)), [*"ACGT", ""], [*"ACGT", ""]))
    with pytest.raises(fg.AlphabetError, match="'@0@', which stands for no symbol"):
        fg.GlobalAlignment(
            ACGT, fg.SubstitutionMatrix([*"ACGT", "@0@"], [*"ACGT"], np.zeros((5, 4))), gap_open=9.0
        )


def test_transducers_read_labels_too():
    fst = transducers.edit_transducer.arrays(ACGT, confusion=turned(COSTS), arc_type="log64")
    plain = transducers.edit_transducer.arrays(ACGT, confusion=COSTS, arc_type="log64")
    np.testing.assert_array_equal(fst.weight, plain.weight)


def test_an_array_with_an_alphabet_has_labels():
    class Matrix(np.ndarray):  # as in Biopython
        alphabet = "GATC"

    table = COSTS[np.ix_(TURNED, TURNED)].view(Matrix)
    assert affine(table)("C", "G") == pytest.approx(-0.6, abs=1e-10)


SQUARE = Frame(np.zeros((2, 2)), ["b", "a"], ["b", "a"])
POSITIONS = {
    "strings": lambda: fg.StringDistribution(Frame(np.zeros((2, 2)), columns=["b", "a"])),
    "trees": lambda: fg.SpanningTrees(SQUARE, single_root=True),
    "undirected": lambda: fg.UndirectedTrees(SQUARE),
    "nodes": lambda: fg.PairwiseMRF(SQUARE, np.zeros((2, 2)), [[0, 1]]),
    "edges": lambda: fg.PairwiseMRF(np.zeros((2, 2)), SQUARE, [[0, 1]]),
    "grid": lambda: fg.PairwiseMRF.grid(1, 2, np.zeros((2, 2)), SQUARE),
    "factors": lambda: fg.PairwiseMRF.from_factors([2, 2], [((0, 1), SQUARE)]),
    "scores of a matrix": lambda: fg.SubstitutionMatrix("ab", "ab", SQUARE),
}


@pytest.mark.parametrize("call", POSITIONS.values(), ids=POSITIONS)
def test_labels_where_positions_count(call):
    with pytest.raises(
        fg.InvalidInputError, match=r"labels .*b, a, but its positions count.*to_num"
    ):
        call()


def test_numbers_in_order_are_no_labels():
    scores = Frame(np.log([[0.25, 0.75]]))
    assert fg.StringDistribution(scores).mode().tolist() == [1]


def test_a_list_of_columns_has_labels():
    rows = [Column(row, LABELS) for row in COSTS[np.ix_(TURNED, TURNED)].tolist()]
    with pytest.raises(fg.AlphabetError, match="columns G, A, T, C, the alphabet is A, C, G, T"):
        fg.EditDistance(ACGT, confusion=rows)
    with pytest.raises(fg.InvalidInputError, match=r"scores has the labels columns b, a, but its"):
        fg.StringDistribution([Column([0.0, 1.0], ["b", "a"])])
    assert fg.StringDistribution([Column([0.0, 1.0])]).mode().tolist() == [1]


def test_rows_of_a_frame_are_ordered_by_their_names_and_have_one_order():
    rows = [Column(row, LABELS) for row in COSTS[np.ix_(TURNED, TURNED)].tolist()]
    for row, name in zip(rows, LABELS, strict=True):
        row.name = name  # as iterrows gives them
    found = fg.EditDistance(ACGT, confusion=rows).matrix(list("ACGT"), list("ACGT"))
    np.testing.assert_array_equal(found, fg.Hamming(ACGT, COSTS).matrix(list("ACGT"), list("ACGT")))
    rows = [Column(row, "ACGT") for row in COSTS.tolist()]
    rows[2] = Column(COSTS[2][TURNED].tolist(), LABELS)
    for call in (lambda: fg.Hamming(ACGT, rows), lambda: fg.StringDistribution(rows)):
        with pytest.raises(fg.InvalidInputError, match=r"\[2\] has others or another order"):
            call()


def test_an_index_may_be_the_digits():
    costs = np.array([[0, 0.1], [0.2, 0]])  # cost["0", "1"] = 0.1
    with pytest.raises(fg.AlphabetError, match="rows 0, 1 and columns 0, 1, the alphabet is 1, 0"):
        fg.EditDistance(fg.Alphabet("10"), confusion=Frame(costs))
    named = Frame(costs, ["0", "1"], ["0", "1"])
    assert fg.EditDistance(fg.Alphabet("10"), confusion=named)("0", "1") == 0.1
    for order in ("01", "12"):
        a, b = order
        assert fg.EditDistance(fg.Alphabet(order), confusion=Frame(costs))(a, b) == 0.1
    with pytest.raises(fg.AlphabetError, match=r"rows 1, 0 .* is 0, 1; .*, with a str"):
        fg.EditDistance(fg.Alphabet("01"), confusion=Frame(costs, [1, 0], [1, 0]))
    with pytest.raises(fg.AlphabetError, match="rows '0 ', 1 and"):
        fg.EditDistance(fg.Alphabet("01"), confusion=Frame(costs, ["0 ", "1"], ["0", "1"]))


INDICES = Frame([[1, 0]], columns=["target", "source"])


@pytest.mark.parametrize(
    "call",
    [
        lambda table: fg.PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), table),
        lambda table: fg.SparseUndirectedTrees(table, [0.0], n=2),
        lambda table: fg.SpanningTrees(np.zeros((1, 3, 3)), single_root=True).nll(table),
    ],
)
def test_labels_of_indices(call):
    with pytest.raises(fg.InvalidInputError, match="columns target, source, but its positions"):
        call(INDICES)
    with contextlib.suppress(fg.InvalidInputError):  # heads of both words are then a cycle
        call(Frame(INDICES.to_numpy()))


def test_names_of_a_mapping_are_no_positions():
    for given in ({"a": 2, "b": 2}, {0: 2, 1: 2}, {2, 3}):
        kind = type(given).__name__
        with pytest.raises(fg.InvalidInputError, match=f"^labels_per_node is a {kind}; positions"):
            fg.PairwiseMRF.from_factors(given, [([0], np.zeros(2))])
    with pytest.raises(fg.InvalidInputError, match=r"^scores is a dict; positions count"):
        fg.SpanningTrees({0: 1.0}, single_root=True)


def test_a_range_without_numbers_or_without_an_end_is_said_so():
    with pytest.raises(fg.InvalidInputError, match=r"is 0; there are no indices, so give none$"):
        fg.PairwiseMRF.from_factors([], [([0], np.zeros(2))])
    with pytest.raises(fg.InvalidInputError, match=r"node\[0\] is 0; indices run from 1$"):
        fg.PairwiseMRF.from_factors([0, 2], [([0], np.zeros(2))])


def test_a_list_that_contains_itself_is_named_at_once():
    """A search of every path through the list would take 2^64 steps."""
    rows = []
    rows.extend([rows, rows])
    for nested in (rows, [[rows], [1.0]], (rows, 2)):
        with pytest.raises(
            fg.InvalidInputError, match=r"scores(\[0\])+ is the list that contains it"
        ):
            fg.StringDistribution(nested)
