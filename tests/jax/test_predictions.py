"""JAX predictions: those of PyTorch, plain, compiled and under vmap."""

import numpy as np
import pytest

import fstgrad as fg

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
import jax.numpy as jnp  # noqa: E402

import fstgrad.jax as fgj  # noqa: E402
import fstgrad.torch as fgt  # noqa: E402
from fstgrad.strings import StringDistribution  # noqa: E402
from tests.jax.cases import ABC, ARCS, EDIT, GRAPH, LATTICES, by_arcs  # noqa: E402

pytestmark = pytest.mark.usefixtures("double")
SIZES = [3, 2]
MASK = np.array([[True, False, True, True], [False, True, True, False]])
GRID = fg.PairwiseMRF.grid(2, 3, np.zeros((6, 2)), np.zeros((2, 2)))


def t(array):
    return torch.tensor(np.array(array))


def chain(module, emissions, transitions, first, last):
    mask = MASK if module is fgj else t(MASK)
    return module.CRF(emissions, transitions, mask, start=first, end=last)


# name: the shapes of the scores, and how a module makes predictions of them
FAMILIES = {
    "strings": ([(2, 4, 3)], lambda module, s: module.Strings(s)),
    "pairs of strings": ([(2, 4, 4, 3)], lambda module, s: module.Strings(s, SIZES)),
    "lattices": (
        [(2, max(ARCS))],
        lambda module, s: module.LatticeStrings(s if module is fgj else by_arcs(s), LATTICES),
    ),
    "chains": (
        [(2, 4, 3), (3, 3)],
        lambda module, emissions, transitions: module.CRF(emissions, transitions),
    ),
    "masked chains": ([(2, 4, 3), (3, 3), (3,), (3,)], chain),
    "trees": ([(2, 4, 4)], lambda module, s: module.Trees(s, single_root=True)),
    "short trees": (
        [(2, 4, 4)],
        lambda module, s: module.Trees(s, single_root=False, lengths=SIZES),
    ),
    "labeled trees": (
        [(2, 4, 4, 2)],
        lambda module, s: module.Trees(s, single_root=True, labeled=True),
    ),
    "fields": ([(2, 3, 2), (2, 2)], lambda module, n, e: module.RandomFields(n, e, GRAPH)),
    "images": (
        [(2, 2, 2, 3), (2, 7, 2, 2)],
        lambda module, n, e: module.RandomFields(n, e, GRID),
    ),
}
EVERY = pytest.mark.parametrize("name", FAMILIES)


def scores_of(name, seed=0):
    source = np.random.default_rng(seed)
    return [source.normal(size=shape) for shape in FAMILIES[name][0]]


def both(name):
    arrays, make = scores_of(name), FAMILIES[name][1]
    return arrays, lambda *s: make(fgj, *s), make(fgt, *map(t, arrays))


@EVERY
def test_structures_equal_those_of_pytorch(name):
    arrays, mine, other = both(name)
    calls = {"decode": other.decode()}
    if name == "lattices":
        calls["mbr"] = other.mbr(EDIT)
    elif "strings" not in name:
        calls["mbr"] = other.mbr()
    for method, expected in calls.items():
        given = [EDIT] if (name, method) == ("lattices", "mbr") else []
        for wrapped in (lambda f: f, jax.jit):
            found = wrapped(lambda *s, m=method, given=given: getattr(mine(*s), m)(*given))(*arrays)
            assert jnp.issubdtype(found.dtype, jnp.integer)
            width = (
                expected.shape[-1] if name == "lattices" else None
            )  # of the longest that is found
            np.testing.assert_array_equal(found[..., :width], expected)
            assert width is None or (found[..., width:] == -100).all()


def test_a_sentence_without_words_has_one_tree():
    scores, given = np.random.default_rng(0).normal(size=(3, 4, 4)), {"single_root": True}
    expected = fgt.Trees(t(scores), lengths=[3, 0, 2], **given)
    for wrapped in (lambda f: f, jax.jit):
        found = wrapped(lambda s: fgj.Trees(s, lengths=[3, 0, 2], **given).nbest(2))(scores)
        np.testing.assert_array_equal(found[0], expected.nbest(2)[0])
        np.testing.assert_allclose(found[1], expected.nbest(2)[1], rtol=0, atol=1e-10)


@EVERY
def test_nbest_equals_that_of_pytorch(name):
    arrays, mine, other = both(name)
    structures, log_probs = other.nbest(5)
    for wrapped in (lambda f: f, jax.jit):
        found, own = wrapped(lambda *s: mine(*s).nbest(5))(*arrays)
        np.testing.assert_array_equal(found, structures)
        np.testing.assert_allclose(own, log_probs, rtol=0, atol=1e-10)


@EVERY
def test_vmap_is_a_loop(name):
    make = FAMILIES[name][1]
    sets = [scores_of(name, seed) for seed in range(3)]
    stacked = [np.stack(parts) for parts in zip(*sets, strict=True)]
    for method, given in (("decode", ()), ("nbest", (3,))):

        def predict(*scores, method=method, given=given):
            return getattr(make(fgj, *scores), method)(*given)

        found = jax.jit(jax.vmap(predict))(*stacked)
        for i, own in enumerate(sets):
            one = jax.tree.map(lambda table, i=i: table[i], found)
            jax.tree.map(np.testing.assert_array_equal, one, predict(*own))


@EVERY
def test_samples(name):
    """The same key gives the same draws, jitted or not; the shares of a tag are its marginals."""
    arrays, mine, other = both(name)
    key = jax.random.key(3)
    drawn = mine(*arrays).sample(4000, key)
    again = jax.jit(lambda k, *s: mine(*s).sample(4000, k))(key, *arrays)
    np.testing.assert_array_equal(drawn, again)
    assert not np.array_equal(drawn, mine(*arrays).sample(4000, jax.random.key(4)))
    expected = np.asarray(other.sample(4000, rng=0))
    np.testing.assert_allclose((drawn == 1).mean(1), (expected == 1).mean(1), atol=0.06)
    np.testing.assert_array_equal(drawn[:, 0] == -100, expected[:, 0] == -100)


def test_least_expected_loss():
    """Of one clear string, and of a mode that is far from all others (both have enough samples)."""
    key, clear = jax.random.key(0), np.full((1, 3, 3), -20.0)
    clear[0, [0, 1, 2], [2, 0, 1]] = 0.0
    found = jax.jit(lambda s, k: fgj.Strings(s).mbr(EDIT, k))(clear, key)
    np.testing.assert_array_equal(found, [[2, 0, 1]])
    scores = np.random.default_rng(0).normal(size=(2, 3, 3))
    best = np.asarray(fgj.Strings(scores).mbr(fg.Hamming(ABC), key, candidates=27, samples=20000))
    for own, table in zip(best, scores, strict=True):  # Hamming: each position by itself
        np.testing.assert_array_equal(own, StringDistribution(table).marginals().argmax(axis=1))


@EVERY
def test_training_on_what_was_predicted(name):
    """Structures are constants; a derivative of their log-probabilities is an error, never 0."""
    arrays, mine, _ = both(name)

    def used(*scores):
        structures, _ = mine(*scores).nbest(2)
        return (structures * scores[0].sum()).sum() + mine(*scores).decode().sum()

    def slope(*scores):
        return mine(*scores).nbest(2)[1].sum()

    structures = mine(*arrays).nbest(2)[0].sum()
    for wrapped in (lambda f: f, jax.jit):
        found = wrapped(jax.grad(used))(*arrays)
        np.testing.assert_allclose(found, np.full(arrays[0].shape, structures), rtol=1e-12)
        with pytest.raises(fg.NotSupportedError, match="score the structures"):
            wrapped(jax.grad(slope))(*arrays)


def test_a_chain_has_the_nll_of_its_function():
    arrays, mine, _ = both("masked chains")
    gold = np.where(MASK, 1, -100)
    expected = fgj.linear_chain_nll(*arrays[:2], gold, MASK, start=arrays[2], end=arrays[3])
    np.testing.assert_array_equal(mine(*arrays).nll(gold), expected)
    slopes = jax.grad(lambda s: mine(s, *arrays[1:]).nll(gold).sum())(arrays[0])
    assert np.abs(slopes[MASK]).max() > 0.1
    np.testing.assert_array_equal(slopes[~MASK], 0.0)


ERRORS = {
    "no batch": (lambda: fgj.Strings(jnp.zeros((3, 2))), r"scores has the shape \(3, 2\)"),
    "no items": (lambda: fgj.Strings(jnp.zeros((0, 3, 2))), "scores have no items"),
    "lengths": (lambda: fgj.Strings(jnp.zeros((1, 3, 2)), [4]), r"lengths\[0\] is 4; give 1 to 3"),
    "k": (lambda: fgj.Strings(jnp.zeros((1, 3, 2))).nbest(0), "k is 0"),
    "key": (lambda: fgj.Strings(jnp.zeros((1, 3, 2))).sample(1, 7), "give what jax.random.key"),
    "loss": (
        lambda: fgj.Strings(jnp.zeros((1, 3, 2))).mbr("edit", jax.random.key(0)),
        "loss is a str",
    ),
    "nan": (lambda: fgj.Strings(jnp.full((1, 3, 2), jnp.nan)).decode(), "nan"),
    "k of chains": (lambda: fgj.CRF(jnp.zeros((1, 3, 2)), jnp.eye(2)).nbest(0), "k is 0"),
    "mask": (lambda: fgj.CRF(jnp.zeros((1, 3, 2)), jnp.eye(2), [[1, 1, 0]]), "mask is int64"),
    "steps": (lambda: fgj.CRF(jnp.zeros((1, 3, 2)), jnp.eye(3)), r"transitions.*give \(2, 2\)"),
    "table": (lambda: fgj.Trees(jnp.zeros((1, 3, 2)), single_root=True), r"give \(B, n\+1, n\+1\)"),
    "graph": (lambda: fgj.RandomFields(jnp.zeros((1, 3, 2)), jnp.eye(2), None), "graph is a None"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    call, said = ERRORS[name]
    with pytest.raises(fg.InvalidInputError, match=said):
        call()


def test_single_precision():
    with jax.enable_x64(False):
        best, log_probs = jax.jit(lambda s: fgj.Strings(s).nbest(2))(jnp.zeros((1, 2, 2)))
    assert best.dtype == jnp.int32
    assert log_probs.dtype == jnp.float32
    np.testing.assert_allclose(log_probs, np.log([[0.25, 0.25]]), rtol=1e-6)


@pytest.mark.parametrize("mask", [-1e9, -1e30, 1e12])
@pytest.mark.parametrize("position", [0, 1, 2, None])
@pytest.mark.parametrize("with_ends", [True, False])
def test_a_position_that_is_masked_whole_costs_no_digits(mask, position, with_ends):
    """Also the first or the last one of a sequence, to which `start` or `end` is added.

    None: all transitions are masked.
    """
    emissions, transitions, *given = scores_of("masked chains")
    start, end = given if with_ends else (None, None)
    gold = np.where(MASK, 1, -100)
    changed = transitions if position is None else emissions
    place = np.s_[:] if position is None else np.s_[:, position]
    one, other = (jnp.asarray(changed).at[place].set(level) for level in (mask, 0.0))
    one, other = (
        fgj.CRF(emissions, table, MASK, start=start, end=end) if position is None
        else fgj.CRF(table, transitions, MASK, start=start, end=end)
        for table in (one, other)
    )  # fmt: skip
    np.testing.assert_allclose(one.nll(gold), other.nll(gold), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(one.mbr(), other.mbr())
    np.testing.assert_array_equal(one.nbest(3)[0], other.nbest(3)[0])
    np.testing.assert_allclose(one.nbest(3)[1], other.nbest(3)[1], rtol=0, atol=1e-12)
