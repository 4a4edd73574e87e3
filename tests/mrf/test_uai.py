"""UAI files: what is read, written and refused, and the published results."""

import itertools

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.mrf import uai
from fstgrad.mrf.factors import Factor
from tests.mrf.models import masked_model

SMALL = """MARKOV
3
2 2 3
3
1 0
2 0 1
3 1 2 0

2
 0.4 0.6
4
 1.5 0.0
 0.5 2.5
12
 1 2 3 4 5 6
 6 5 4 3 2 1
"""


def small_weight(a, b, c):
    pair = [[1.5, 0.0], [0.5, 2.5]][a][b]
    return [0.4, 0.6][a] * pair * ([1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1][6 * b + 2 * c + a])


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.uai"
    path.write_text(SMALL)
    return path


def test_values_of_a_small_file(small):
    model = uai.read_model(small).to_mrf()
    states = list(itertools.product(range(2), range(2), range(3)))
    weights = np.array([small_weight(*state) for state in states])
    assert model.num_nodes == 3
    assert model.factors.number == 1
    assert model.log_partition() == pytest.approx(np.log(weights.sum()), rel=1e-13)
    expected = [weights[[s[2] == c for s in states]].sum() / weights.sum() for c in range(3)]
    np.testing.assert_allclose(model.marginals().node[2, :3], expected, atol=1e-13)
    best = states[int(weights.argmax())]
    assert tuple(model.mode()) == best
    assert model.log_prob(best) == pytest.approx(np.log(weights.max() / weights.sum()))
    assert model.log_prob((0, 1, 0)) == -np.inf


def test_a_table_of_a_network_with_the_parent_fastest_is_told(tmp_path):
    """P(b | a) is [[0.9, 0.1], [0.3, 0.7]]; the second file has it transposed."""
    network = tmp_path / "network.uai"
    text = "BAYES\n2\n2 2\n3\n1 0\n2 0 1\n0\n2 0.4 0.6\n4 {}\n1 1.0\n"
    network.write_text(text.format("0.9 0.1 0.3 0.7"))
    marginals = uai.read_model(network).to_mrf().marginals().node
    assert marginals[1, 0] == pytest.approx(0.4 * 0.9 + 0.6 * 0.3, abs=1e-14)
    network.write_text(text.format("0.9 0.3 0.1 0.7"))
    with pytest.warns(UserWarning, match="variable 1, the last of factor 1, sum to 0.8 "):
        uai.read_model(network)
    network.write_text(text.format("0.9 0.3 0.1 0.7").replace("BAYES", "MARKOV"))
    uai.read_model(network)


NETWORKS = [
    # the child comes first in its scope, and each row happens to sum to 1
    ("2\n1 0\n2 1 0\n2 .7 .3\n4 .4 .6 .9 .1", "variable 1 is the last of no factor .*; variable 0 "
     "is the last of factors 0 and 1; in a BAYES"),
    ("1\n2 0 1\n4 .4 .6 .9 .1", "variable 0 is the last of no factor and has no table; in a BAYES"),
    ("2\n2 1 0\n2 0 1\n4 .7 .3 .4 .6\n4 .4 .6 .9 .1", "variables 0, 1, 0 is a parent of the next"),
    ("3\n1 0\n2 0 1\n0\n2 .7 .3\n4 .4 .6 .9 .1\n1 5", "factor 2, over no variable, is 5, not 1"),
    ("2\n1 0\n2 1 0\n2 .7 .3\n4 .5 .9 .6 .1", "sum to 1.4 .*; variable 1 is the last of no"),
]  # fmt: skip


@pytest.mark.parametrize("text, message", NETWORKS)
def test_factors_that_are_no_network_are_told(tmp_path, text, message):
    path = tmp_path / "network.uai"
    path.write_text("BAYES\n2\n2 2\n" + text)
    with pytest.warns(UserWarning, match=message):
        file = uai.read_model(path)
    weights = np.ones((2, 2))
    for scope, table in file.factors:
        for y in np.ndindex(2, 2):
            weights[y] *= np.exp(np.asarray(table)[tuple(y[v] for v in scope)])
    assert abs(weights.sum() - 1) > 0.05  # the sum over a network is 1
    assert file.to_mrf().log_partition() == pytest.approx(np.log(weights.sum()), rel=1e-13)
    path.write_text("MARKOV\n2\n2 2\n" + text)
    uai.read_model(path)


def test_networks_in_any_order_are_read_without_a_word(tmp_path):
    rng = np.random.default_rng(5)
    for _ in range(20):
        order, lines = rng.permutation(6), ["BAYES", "6", "2 3 2 2 3 2", "6"]
        sizes, tables = [2, 3, 2, 2, 3, 2], []
        for place in rng.permutation(6):
            parents = [v for v in order[:place] if rng.random() < 0.5][:3]
            lines.append(" ".join(map(str, [len(parents) + 1, *parents, order[place]])))
            rows = int(np.prod([sizes[v] for v in parents], dtype=int))
            table = rng.dirichlet(np.ones(sizes[order[place]]), rows).ravel()
            tables.append(" ".join(map(str, [table.size, *table])))
        (tmp_path / "n.uai").write_text("\n".join(lines + tables))
        model = uai.read_model(tmp_path / "n.uai").to_mrf()
        assert model.log_partition() == pytest.approx(0, abs=1e-13)


def test_comments_are_left_out(tmp_path, small):
    path = tmp_path / "named.uai"
    path.write_text(SMALL.replace("1 0\n", "1 0   # 1 cat\n", 1).replace("3\n", "3#\n", 1))
    assert path.read_text() != SMALL
    assert uai.read_model(path).to_mrf().log_partition() == pytest.approx(
        uai.read_model(small).to_mrf().log_partition()
    )


def test_factors_over_the_same_nodes_are_added():
    rng = np.random.default_rng(0)
    one, two, turned = rng.normal(size=3), rng.normal(size=(3, 2)), rng.normal(size=(2, 3))
    model = fg.PairwiseMRF.from_factors(
        [3, 2],
        [Factor((0,), one), Factor((0,), one), Factor((0, 1), two), Factor((1, 0), turned),
         Factor((), 0.7)],
    )  # fmt: skip
    total = 2 * one[:, None] + two + turned.T + 0.7
    assert model.graph.num_edges == 1
    assert model.log_partition() == pytest.approx(np.logaddexp.reduce(total.ravel()), rel=1e-13)
    assert model.score([2, 1]) == pytest.approx(total[2, 1])
    assert model.log_prob([2, 1]) == pytest.approx(total[2, 1] - model.log_partition())
    assert model.kl(model) == pytest.approx(0, abs=1e-12)


def test_written_models_read_back_the_same(tmp_path):
    model = masked_model("square with a chord")
    uai.write_model(tmp_path / "m.uai", model)
    again = uai.read_model(tmp_path / "m.uai").to_mrf()
    assert again.log_partition() == pytest.approx(model.log_partition(), rel=1e-14)
    np.testing.assert_allclose(again.marginals().node, model.marginals().node, atol=1e-14)
    uai.write_evidence(tmp_path / "m.evid", {2: 1, 0: 0})
    assert uai.read_evidence(tmp_path / "m.evid", again.labels_per_node) == {2: 1, 0: 0}


def test_results_in_uai_form():
    assert uai.format_partition(np.log(1000.0)) == "PR\n3\n"
    node = np.array([[0.25, 0.75, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    assert uai.format_marginals(node, np.array([2, 3])) == (
        "MAR\n2 2 0.25 0.75 3 0.333333 0.333333 0.333333\n"
    )
    assert uai.format_mode(np.array([1, 0])) == "MAP\n2 1 0\n"


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("MARKOV", "MARCOV", "line 1: the file starts with 'MARCOV'"),
        ("2 2 3\n", "2 2 x\n", "line 3: the size of variable 2 is 'x'; give an integer"),
        ("2 2 3\n", "2 2 0_3\n", "line 3: the size of variable 2 is '0_3'; give an integer"),
        ("2 2 3\n", "2 0 3\n", "line 3: the size of variable 1 is 0; it must be >= 1"),
        ("2 0 1\n", "2 0 3\n", r"line 6: a variable of factor 1 is 3; it must be in 0 .. 2"),
        ("2 0 1\n", "2 0 0\n", "line 6: factor 1 names a variable twice"),
        ("12\n", "11\n", "line 14: factor 2 announces 11 values; its scope .* has 12 states"),
        ("1.5 0.0", "1.5 -1", "line 12: factor 1 has the value -1; give a finite number >= 0"),
        ("1.5 0.0", "1.5 one", "line 12: factor 1 has the value 'one'"),
        ("3 2 1\n", "3 2\n", "line 14: factor 2 has 12 values; the file has 11 words left"),
        ("3 2 1\n", "3 2 1 0\n", "line 16: '0' comes after the last value"),
    ],
)
def test_malformed_files_name_the_line(small, old, new, message):
    assert SMALL.count(old) >= 1
    head, _, tail = SMALL.rpartition(old) if old == "3 2 1\n" else SMALL.partition(old)
    small.write_text(head + new + tail)
    with pytest.raises(fg.InvalidInputError, match=message):
        uai.read_model(small)


@pytest.mark.parametrize(
    "text, message",
    [
        ("1 3 0", "an observed variable is 3"),
        ("1 0 2", "the value of variable 0 is 2; it must be in 0 .. 1"),
        ("2 0 1 0 0", "variable 0 is observed as 1 and as 0"),
        ("", "e: the file is empty; it ends where the number of observed variables"),
        ("2 0 1", "e, line 1: the file ends where"),
        ("1 0 1 2", "line 1: "),
        ("2 0", "line 1: the file ends where the value of variable 0 should come"),
        ("1 0", "'1 0' begins with .*; write '0' in the first case, '1 0 VALUE' in the second"),
        ("1\n1 1\n0", "'1 1 1 0' begins .*; write '1 1 0' in the first case, '1 1 1' in the"),
        ("1 1 0 1", "'1 1 0 1' begins .*; write '1 0 1' in the first case, '1 1 0' in the second"),
        ("2\n0\n1 1 0", "the file has 2 samples; give one sample in each file, on one line"),
    ],
)
def test_bad_evidence(tmp_path, text, message):
    (tmp_path / "e").write_text(text)
    with pytest.raises(fg.InvalidInputError, match=message):
        uai.read_evidence(tmp_path / "e", np.array([2, 2, 3]))


@pytest.mark.parametrize("old", ["1\n2 2 1 0 0\n", "1 2 2 1 0 0", "\n1\n\n2 2 1\n0 0"])
def test_the_older_evidence_begins_with_the_number_of_samples(tmp_path, old):
    path, sizes = tmp_path / "e", np.array([2, 2, 3])
    path.write_text(old)
    assert uai.read_evidence(path, sizes) == {2: 1, 0: 0}
    both = {0: 1, 1: 0}
    for text, observed in (("0", {}), ("1\n0\n", {}), ("1\n0 1", {0: 1}), ("2 0 1 1 0", both),
                           ("1 0 0", {0: 0}), ("1\n1 1 0\n", {1: 0})):  # fmt: skip
        path.write_text(text)
        assert uai.read_evidence(path, sizes) == observed
    for text in ("2\n1 0 1\n2 0 0 1 1\n", "2\n0\n1 1 0\n"):
        path.write_text(text)
        with pytest.raises(fg.InvalidInputError, match="has 2 samples; give one sample in each"):
            uai.read_evidence(path, sizes)


FAST = ["Alchemy_11", "CSP_12", "Grids_11", "Grids_12", "Segmentation_11", "Segmentation_12"]
SLOW = ["ObjectDetection_11", "Grids_15"]


@pytest.mark.parametrize(
    "name", FAST + [pytest.param(name, marks=pytest.mark.nightly) for name in SLOW]
)
def test_published_results(shared_data, name):
    path = shared_data / "uai" / f"{name}.uai"
    file = uai.read_model(path)
    evidence = uai.read_evidence(f"{path}.evid", file.sizes)
    model = file.to_mrf().condition(evidence)
    expected = (path.parent / f"{path.name}.PR").read_text().split()  # six significant digits
    kind, value = uai.format_partition(model.log_partition()).split()
    assert [kind, f"{float(value):.6g}"] == expected
    words = (path.parent / f"{path.name}.MAR").read_text().split()[1:]
    mine = uai.format_marginals(model.marginals().node[: len(file.sizes)], file.sizes).split()[1:]
    assert len(words) == len(mine)
    for theirs, ours in zip(words, mine, strict=True):
        # both are printed with six significant digits: one unit of the last may differ
        digit = 10.0 ** (np.floor(np.log10(max(float(theirs), 1e-300))) - 5)
        assert float(ours) == pytest.approx(float(theirs), abs=1.01 * digit)
    theirs = [int(word) for word in (path.parent / f"{path.name}.MAP").read_text().split()[2:]]
    assert model.score(model.mode()) >= model.score(theirs) - 1e-9


@pytest.mark.parametrize("cells", [10**15, 10**20])
def test_a_table_larger_than_the_file_is_refused(tmp_path, cells):
    side = round(cells ** (1 / 5))
    path = tmp_path / "huge.uai"
    path.write_text(f"MARKOV\n5\n{' '.join([str(side)] * 5)}\n1\n5 0 1 2 3 4\n{side**5}\n1 2 3\n")
    with pytest.raises(fg.InvalidInputError, match=r"file has 3 words left|below 10"):
        uai.read_model(path)


def test_a_variable_of_many_values_is_refused(tmp_path):
    path = tmp_path / "huge.uai"
    path.write_text("MARKOV\n2\n1000000000000 2\n0\n")
    with pytest.raises(fg.MemoryLimitError, match="split the largest factor or variable"):
        uai.read_model(path).to_mrf()


@pytest.mark.parametrize("score", [800.0, -800.0])
def test_scores_whose_weights_leave_the_range_of_floats_are_refused(tmp_path, score):
    model = fg.PairwiseMRF(np.zeros((2, 2)), [[score, 0.0], [0.0, 0.0]], [(0, 1)])
    with pytest.raises(fg.InvalidInputError, match="outside the range of a file of weights"):
        uai.write_model(tmp_path / "m.uai", model)
