"""Infeasible items of a batch: one error names all of them, or their values and gradients are 0.

The objectives are found from the public names of `fstgrad.torch`, `fstgrad.jax` and
`fstgrad.objectives`; one without a row here fails.
"""

import importlib
import inspect
import pkgutil
import re

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.objectives import ctc, lattices, mrf, nbest, strings, trees
from fstgrad.objectives.base import Objective
from fstgrad.objectives.infeasible import FeasibleItems
from fstgrad.objectives.lattices import lattice_items
from fstgrad.objectives.sampling import Options, Sampling
from tests.borders.columns import callables

INF, NO_ID = np.inf, -100
ABC = fg.Alphabet("ab")
EDIT, WITH_BLANK = fg.EditDistance(ABC), fg.EditDistance(fg.Alphabet("_ab"))
GRAPH = fg.PairwiseMRF(np.zeros((3, 2)), np.zeros((2, 2)), np.array([[0, 1], [1, 2]]))
SIZE, GOOD = 6, [0, 2, 5]  # the items 1, 3 and 4 are infeasible
BAD = [1, 3, 4]


def normal(*shape):
    return np.random.default_rng(len(shape)).normal(size=shape)


def with_changes(table, changes):
    table = table.copy()
    for place, value in changes.items():
        table[place] = value
    return table


STRINGS = with_changes(normal(SIZE, 3, 2), {(1, 2): -INF, (3, 0): -INF})  # no symbol is left
GOLD = np.array([[0, 1, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0], [NO_ID] * 3, [1, 0, NO_ID]])
FRAMES = with_changes(normal(SIZE, 3, 3), {(4, 0): -INF})
LABELS = np.array([[1, NO_ID], [1, 1], [1, 2], [2, 2], [2, NO_ID], [2, 1]])
LENGTHS = np.array([3, 2, 3, 2, 3, 2])  # two equal labels need three frames; item 4 has no label 2
TREES = with_changes(normal(SIZE, 4, 4), {(1, ..., 2): -INF, (3, ..., 1): -INF, (4, 0): -INF})
HEADS = np.array([[0, 1, 2]] * SIZE)
NODES = with_changes(normal(SIZE, 3, 2), {(1, 0): -INF, (3, 2): -INF, (4, 1): -INF})
LABELING = np.array([[0, 1, 1]] * SIZE)
LISTS = with_changes(normal(SIZE, 2), {(1,): -INF, (3,): -INF})
HYPOTHESES = np.array([[[0, 1, NO_ID], [1, 1, 0]]] * SIZE)
COUNTS = np.array([2, 2, 1, 2, 0, 2])
LATTICE = fg.Lattice.from_nbest(["ab", "abb", "b"], np.zeros(3), ABC)
ARCS = with_changes(normal(SIZE, LATTICE.num_arcs), {(1,): -INF})
NO_PATHS = with_changes(ARCS, dict.fromkeys([(1,), (3,), (4,)], -INF))
TEXTS = ["ab", "ab", "b", "aa", "xy", "abb"]  # aa is not in the lattice, x not in the alphabet
TREE = {"single_root": True}

# function: (arrays with an axis of items, in the order of the parameters; scores first), and the
# other arguments
ROWS = {
    "softmax_margin": (("scores", STRINGS), ("gold", GOLD), {"loss": EDIT}),
    "crf_nll": (("scores", STRINGS), ("gold", GOLD), {}),
    "risk": (("scores", STRINGS), ("gold", GOLD), {"loss": EDIT}),
    "ctc_nll": (("scores", FRAMES), ("gold", LABELS), ("lengths", LENGTHS), {}),
    "ctc_softmax_margin": (
        ("scores", FRAMES), ("gold", LABELS), ("lengths", LENGTHS),
        {"loss": WITH_BLANK},
    ),
    "ctc_risk": (
        ("scores", with_changes(FRAMES, {(3, 0): -INF, (4, 1): -INF})), ("gold", LABELS),
        ("lengths", with_changes(LENGTHS, {1: 0})), {"loss": WITH_BLANK},
    ),
    "nbest_risk": (
        ("log_probs", LISTS), ("hypotheses", HYPOTHESES), ("references", GOLD.clip(0)),
        ("lengths", COUNTS), {"loss": EDIT},
    ),
    "linear_chain_nll": (
        ("emissions", STRINGS), ("gold", GOLD), {"transitions": normal(2, 2)},
    ),
    "lattice_softmax_margin": (("scores", ARCS), {"lattice": LATTICE, "gold": TEXTS}),
    "lattice_crf_nll": (("scores", ARCS), {"lattice": LATTICE, "gold": TEXTS}),
    "lattice_risk": (
        ("scores", with_changes(ARCS, {(3,): -INF})),
        {"lattice": LATTICE, "gold": TEXTS, "loss": EDIT},
    ),
    "lattice_log_partition": (("scores", NO_PATHS), {"lattice": LATTICE}),
    "lattice_marginals": (("scores", NO_PATHS), {"lattice": LATTICE}),
    "lattice_entropy": (("scores", NO_PATHS), {"lattice": LATTICE}),
    "spanning_tree_log_partition": (("scores", TREES), TREE),
    "spanning_tree_marginals": (("scores", TREES), TREE),
    "spanning_tree_nll": (("scores", with_changes(normal(SIZE, 4, 4), {(1, 0, 1): -INF})),
        ("gold", with_changes(HEADS, {3: [0, 1, 0], 4: [0, 0, 0]})), TREE),
    "spanning_tree_partial_nll": (
        ("scores", with_changes(normal(SIZE, 4, 4), {(1, ..., 2): -INF})),
        ("allowed", with_changes(HEADS, {3: [0, -1, 0], 4: [0, 0, -1], 5: [-1, 1, -1]})), TREE,
    ),
    "spanning_tree_entropy": (("scores", TREES), TREE),
    "spanning_tree_kl": (("p_scores", TREES), ("q_scores", TREES + 0.5 * normal(SIZE, 4, 4)), TREE),
    "spanning_tree_risk": (("scores", TREES), ("costs", normal(SIZE, 4, 4)), TREE),
    "spanning_tree_generalized_expectation": (
        ("scores", TREES), ("features", normal(SIZE, 4, 4, 2)), ("target", normal(SIZE, 2)), TREE,
    ),
    "mrf_nll": (("node_scores", with_changes(NODES, {(4, 1): 0.0, (4, 1, 1): -INF})),
        ("gold", LABELING), {"edge_scores": normal(2, 2), "graph": GRAPH}),
    "mrf_log_partition": (("node_scores", NODES), {"edge_scores": normal(2, 2), "graph": GRAPH}),
    "mrf_marginals": (("node_scores", NODES), {"edge_scores": normal(2, 2), "graph": GRAPH}),
}  # fmt: skip
WITHOUT = {  # why there is no batch with infeasible items
    "function_of": "makes functions, which have the option", "module_of": "makes modules",
    "mrf_dense_marginals": "no item has a gold labeling, and mean field is defined for all scores",
    "use_device_paths": "a setting", "ctc_align": "paths, no objective",
    "TransducerCosts": "a pair without an alignment has the documented loss +inf",
}  # fmt: skip


def objectives(framework):
    """The public functions of a framework, and in PyTorch its modules, with a row each."""
    package = pytest.importorskip(f"fstgrad.{framework}")
    for name in package.__all__:
        public = getattr(package, name)
        if (
            name in WITHOUT
            or inspect.ismodule(public)
            or (inspect.isclass(public) and not hasattr(public, "function"))
        ):
            continue  # such a class is a distribution or a result
        yield name, getattr(public, "function", public).__name__


def call_of(framework, name, row):
    """A function of the scores, the items that are used and options, and the scores."""
    package = importlib.import_module(f"fstgrad.{framework}")
    *arrays, others = ROWS[row]
    public = getattr(package, name)
    make = importlib.import_module("torch").tensor if framework == "torch" else np.asarray
    parameters = inspect.signature(getattr(public, "function", public)).parameters
    first = arrays[0][1]

    def call(scores, items, **options):
        given = {parameter: make(table[items]) for parameter, table in arrays[1:]} | {
            k: make(v) if isinstance(v, np.ndarray) else v for k, v in others.items()
        }
        given = {
            "heads" if k == "gold" and "heads" in parameters else k: v for k, v in given.items()
        }
        if "lattice" in given:
            given["lattice"] = [LATTICE] * len(items)
            if "gold" in given:
                given["gold"] = [TEXTS[i] for i in items]
            scores = [scores[i] for i in range(len(items))] if framework == "torch" else scores
        if not inspect.isclass(public):
            if "reduction" in parameters:
                options = {"reduction": "none"} | options
            return public(**{arrays[0][0]: scores}, **given, **options)
        settings = set(inspect.signature(public).parameters) & set(given)
        module = public(**{k: given.pop(k) for k in settings}, **({"reduction": "none"} | options))
        return module(**{arrays[0][0]: scores}, **given)

    return call, first


def evaluated(framework, call, table, items, **options):
    """The values, each array with an axis of items, and the gradient of their weighted sum."""
    shares = 0.5 + np.arange(SIZE)[items]

    def weighted(results, weights):
        parts = results if isinstance(results, tuple) else [results]
        return sum((p.reshape(len(items), -1).sum(1) * weights).sum() for p in parts)

    def first_of(results):
        return results[0] if isinstance(results, tuple) else results

    if framework == "torch":
        torch = importlib.import_module("torch")
        scores = torch.tensor(table[items], requires_grad=True)
        results = call(scores, items, **options)
        results = torch.stack(results) if isinstance(results, list) else results
        weighted(results, torch.tensor(shares)).backward()
        first = first_of(results)
        return first.detach().numpy(), scores.grad.numpy()
    jax = importlib.import_module("jax")
    with jax.enable_x64(True):
        scores = jax.numpy.asarray(table[items])

        def total(scores):
            results = call(scores, items, **options)
            return weighted(results, shares), results

        slope, results = jax.grad(total, has_aux=True)(scores)
        first = first_of(results)
        return np.asarray(first), np.asarray(slope)


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_every_objective_names_them_all_or_goes_on_without_them(framework):
    for name, row in objectives(framework):
        assert row in ROWS, f"{name} needs a row here, with an option infeasible"
        call, table = call_of(framework, name, row)
        every = list(range(SIZE))
        tensor = table if framework == "jax" else importlib.import_module("torch").tensor(table)
        with pytest.raises(fg.InfeasibleError, match=r"^3 items are infeasible") as caught:
            call(tensor, every)
        assert list(caught.value.reasons) == BAD, name
        for item in BAD:
            assert re.search(rf"\[{item}\]|item {item}:", str(caught.value)), (name, item)
        assert str(caught.value).endswith("or give infeasible='zero'"), name
        values, gradient = evaluated(framework, call, table, every, infeasible="zero")
        # twice, because JAX compiles for each shape
        wanted, slope = (part[:3] for part in evaluated(framework, call, table, GOOD * 2))
        np.testing.assert_allclose(values[GOOD], wanted, rtol=0, atol=1e-10, err_msg=name)
        np.testing.assert_allclose(gradient[GOOD], slope, rtol=0, atol=1e-10, err_msg=name)
        assert not values[BAD].any(), name
        assert not gradient[BAD].any(), name
        nothing, flat = evaluated(framework, call, table, BAD * 2, infeasible="zero")
        assert not nothing.any(), name
        assert not flat.any(), name
        with pytest.raises(fg.InvalidInputError, match="infeasible is 'skip'; choose one of"):
            call(tensor, every, infeasible="skip")


def test_a_mean_divides_by_the_whole_batch_as_that_of_pytorch_does():
    torch = pytest.importorskip("torch")
    fgt = importlib.import_module("fstgrad.torch")
    scores, target = torch.tensor(normal(SIZE, 3, 3)), torch.tensor(LABELS)
    sizes = (target != NO_ID).sum(dim=1)
    given = (
        scores.log_softmax(2).transpose(0, 1),
        target.clamp(min=0),
        torch.tensor(LENGTHS),
        sizes,
    )
    for reduction in ("none", "sum"):
        wanted = torch.nn.functional.ctc_loss(*given, reduction=reduction, zero_infinity=True)
        module = fgt.CTCLoss(infeasible="zero", reduction=reduction)
        found = module(scores, target, torch.tensor(LENGTHS))
        torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)
    mean = fgt.CTCLoss(infeasible="zero")(scores, target, torch.tensor(LENGTHS))
    assert mean.item() == pytest.approx(wanted.item() / SIZE, abs=1e-12)


def test_jit_and_compile_go_on_too():
    jax, torch = pytest.importorskip("jax"), pytest.importorskip("torch")
    fgj = importlib.import_module("fstgrad.jax")
    with jax.enable_x64(True):
        loss = jax.jit(lambda s, g: fgj.crf_nll(s, g, infeasible="zero"))
        np.testing.assert_allclose(loss(STRINGS, GOLD)[np.array(BAD)], 0.0)
    fgt = importlib.import_module("fstgrad.torch")
    gold, heads = torch.tensor(GOLD), torch.tensor(ROWS["spanning_tree_nll"][1][1])
    steps, known = torch.tensor(normal(2, 2)), {"infeasible": "zero"}
    calls = (
        (STRINGS, lambda s: fgt.crf_nll(s, gold, reduction="none", **known)),
        (STRINGS, lambda s: fgt.linear_chain_nll(s, steps, gold, reduction="none", **known)),
        (TREES, lambda s: fgt.spanning_tree_nll(s, heads, single_root=True, **known)),
    )
    for table, function in calls:
        whole, scores = (
            torch.compile(function, fullgraph=True, backend="aot_eager"),
            torch.tensor(table),
        )
        values = whole(scores)
        assert not values[BAD].any()
        torch.testing.assert_close(values, function(scores), rtol=0, atol=1e-12)


ON_DEVICES = [name for name in ROWS if name.startswith("spanning_tree")]
ON_DEVICES += ["crf_nll", "risk", "linear_chain_nll", "nbest_risk"]
ON_DEVICES += ["lattice_softmax_margin", "lattice_crf_nll", "lattice_risk"]


@pytest.mark.parametrize("name", ON_DEVICES)
def test_on_a_device_they_count_as_zero_too(name):
    """There the other choice gives NaN for these items, and NaN scores give NaN with both."""
    fgt = pytest.importorskip("fstgrad.torch")
    call, table = call_of("torch", name, name)
    known = evaluated("torch", call, table, list(range(SIZE)), infeasible="zero")
    with fgt.use_device_paths():
        found = evaluated("torch", call, table, list(range(SIZE)), infeasible="zero")
        none, flat = evaluated("torch", call, table, BAD, infeasible="zero")
        wrong = with_changes(table, {(0, 0, 1)[: table.ndim]: np.nan})
        values = evaluated("torch", call, wrong, list(range(SIZE)), infeasible="zero")[0]
    for mine, other in zip(found, known, strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-10)
    assert not none.any()
    assert not flat.any()
    is_nan = np.isnan(values).reshape(SIZE, -1).any(axis=1)
    assert is_nan.tolist() == [True] + [False] * 5


TABLE, VECTORS = normal(SIZE, 4, 4), normal(SIZE, 4, 4, 2)
OTHER = fg.SpanningTrees(TREES + TABLE, single_root=True, infeasible="zero")
# what a class of batches is made of (the items, first), and the arguments of its methods: those
# that are arrays of SIZE items, or distributions, have one for each item
CLASSES = {
    "SpanningTrees": (lambda i: {"scores": TREES[i], **TREE}, {
        "covariance": {"r": TABLE, "s": VECTORS[..., 0]}, "covariance_matrix": {},
        "covariance_product": {"direction": TABLE}, "cross_entropy": {"other": OTHER},
        "cross_entropy_and_gradients": {"other": OTHER}, "entropy": {},
        "entropy_and_gradient": {}, "expectation": {"r": TABLE}, "expectations": {"r": VECTORS},
        "expected_product": {"q": TABLE**2},
        "generalized_expectation": {"features": VECTORS, "target": normal(SIZE, 2)},
        "kbest": {"k": 2}, "kl": {"other": OTHER}, "kl_and_gradients": {"other": OTHER},
        "log_partition": {}, "log_prob": {"structure": HEADS}, "marginals": {},
        "minimum_risk_tree": {}, "mode": {}, "nll": {"gold": HEADS}, "norm": {"order": 2.0},
        "partial_nll": {"known": with_changes(HEADS, {2: -1})}, "renyi": {"order": 2.0},
        "renyi_and_gradient": {"order": 0.5}, "risk": {"costs": TABLE},
        "sample": {"k": 3, "rng": 0}, "sample_without_replacement": {"k": 2, "rng": 0},
        "second_moments": {"r": VECTORS, "s": VECTORS}, "softmax_margin":
        {"gold": HEADS, "costs": TABLE}, "third_order": {"v": TABLE, "u": VECTORS[..., 0]},
        "totals": {"r": VECTORS},
    }),
    "PairwiseMRFBatch": (lambda i: {"model": GRAPH, "node_scores": NODES[i], "edge_scores":
                                    normal(2, 2)}, {
        "infer": {"method": "bp"}, "log_partition": {}, "marginals": {}, "mode": {},
        "nll": {"gold": LABELING}, "sample": {"k": 3, "rng": 0},
    }),
}  # fmt: skip
CLASSES["ProjectiveTrees"] = (
    CLASSES["SpanningTrees"][0],
    {k: v for k, v in CLASSES["SpanningTrees"][1].items() if hasattr(fg.ProjectiveTrees, k)},
)
NO_ITEMS = {  # methods that need no structure of an item
    "parts": "a table of what is given", "gold_parts": "as parts", "hamming_costs": "as parts",
    "inner": "of given tables", "log_base": "0", "expected_log_base": "0",
    "scaled": "a batch", "with_arcs": "a batch", "with_scores": "a batch",
    "with_column": "for one table", "with_score": "for one table", "count": "of a Sequence",
    "index": "of a Sequence",
}  # fmt: skip
WITHOUT_WORDS = {"norm": 1.0, "expected_product": 1.0}  # of a sentence without words
MANY = {"X", "hypotheses", "numbered", "pairs", "questions", "shards"}
NO_OPTION = {  # why other functions of many items have no option
    r".*\.Batch\.\w+": "a chunk has the outcome of each pair, with its error",
    r".*\.GeneralizedRootModel\..*": "all rows of counts are feasible",
    r".*\.(SequenceModel\.\w+|TemplateFeatures\..*)": "training data, and predictions of any input",
    r".*\.(fit_costs|fit_ranking)": "one error names all that cannot be fitted",
    r".*\.costs\.PairTransducer\.\w+": "a pair without an alignment has the sum -inf",
    r".*\.(score|Lattice\.from_nbest)": "defined for all hypotheses",
}  # fmt: skip


def part_of(result, item, axis=0):
    """The result of one item of a batch: arrays, lists and numbers."""
    if isinstance(result, tuple):
        return [part_of(part, item, axis) for part in result]
    if isinstance(result, np.ndarray):
        return np.take(result, item, axis)
    found = result[item]
    return [found.log_partition, found.node, found.edge] if hasattr(found, "node") else found


def close(found, wanted):
    if isinstance(found, list | tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            close(one, other)
        return
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-10)


def numbers(result):
    parts = result if isinstance(result, list | tuple) else [result]
    flat = [np.ravel(p) if not isinstance(p, list | tuple) else numbers(p) for p in parts]
    return np.concatenate(flat) if flat else np.zeros(0)


def batch_of(name, items, **options):
    return getattr(fg, name)(**CLASSES[name][0](items), **options)


def taken(given, items):
    """The arguments of a method for some items."""
    other = fg.SpanningTrees(OTHER.scores[items], **TREE)
    return {
        k: other if v is OTHER else v[items] if isinstance(v, np.ndarray) else v
        for k, v in given.items()
    }


def test_the_batches_of_numpy_have_the_option():
    """Those found are what the package exports; a new method needs a row here."""
    public = {name: getattr(fg, name) for name in fg.__all__}
    found = {
        name for name, thing in public.items()
        if callable(thing) and not (inspect.isclass(thing) and issubclass(thing, Exception))
        and "infeasible" in inspect.signature(thing).parameters
    }  # fmt: skip
    assert found == {*CLASSES, "best_tree"}
    for name, thing in callables():
        parameters = inspect.signature(thing).parameters
        if name.startswith(("fstgrad.torch", "fstgrad.jax")) or not MANY & set(parameters):
            continue
        has_choice = {"infeasible", "on_error"} & set(parameters)
        assert has_choice or any(re.fullmatch(k, name) for k in NO_OPTION), name
    for name, (_, methods) in CLASSES.items():
        members = [
            k for k in dir(public[name]) if k[0] != "_" and callable(getattr(public[name], k))
        ]
        missing = set(members) - set(methods) - set(NO_ITEMS)
        assert not missing, f"{name}: {sorted(missing)}"


@pytest.mark.parametrize("name", CLASSES)
def test_every_method_of_a_batch_names_them_all_or_goes_on_without_them(name):
    every, rows = list(range(SIZE)), CLASSES[name][1]
    strict, tolerant = batch_of(name, every), batch_of(name, every, infeasible="zero")
    for method, given in rows.items():
        with pytest.raises(fg.InfeasibleError, match=r"^3 items are infeasible") as caught:
            getattr(strict, method)(**given)
        assert list(caught.value.reasons) == BAD, method
        assert str(caught.value).endswith("or give infeasible='zero'"), method
        result = getattr(tolerant, method)(**given)
        wanted = getattr(batch_of(name, GOOD), method)(**taken(given, GOOD))
        axis = 1 if method == "sample" and name != "PairwiseMRFBatch" else 0
        for place, item in enumerate(GOOD):
            mine, theirs = part_of(result, item, axis), part_of(wanted, place, axis)
            if method in ("kbest", "sample_without_replacement"):
                assert [len(result[bad]) for bad in BAD] == [0] * len(BAD)
            if method.startswith("sample"):  # the generator is shared
                assert (np.concatenate([numbers(mine)]) >= -1e3).all()
            else:
                close(mine, theirs)
        for item in BAD:
            left = numbers(part_of(result, item, axis))
            expected = -1 if method in ("sample", "mode", "minimum_risk_tree") else 0
            assert (left == WITHOUT_WORDS.get(method, expected)).all(), (method, left)


def test_a_mean_of_pairs_divides_by_all_of_them():
    objective = fg.PairObjective(fg.QGramCounts(ABC, 2), fg.NGram(ABC, 2))
    w, pairs = normal(2, 2), [("", "ab"), ("", "b"), ("", "ba"), ("", "a")]
    with pytest.raises(
        fg.InfeasibleError, match=r"^2 items .*or give infeasible='zero'$"
    ) as caught:
        objective.mean(w, pairs)
    assert list(caught.value.reasons) == [1, 3]
    value, gradient = objective.mean(w, pairs, infeasible="zero")
    wanted, slope = objective.mean(w, pairs[::2])
    assert value == pytest.approx(wanted / 2, abs=1e-12)
    np.testing.assert_allclose(gradient, slope / 2, atol=1e-12)
    assert objective.mean(w, pairs[1:2], infeasible="zero")[0] == 0.0
    with pytest.raises(fg.InvalidInputError, match="pairs is empty"):
        objective.mean(w, [], infeasible="zero")


@pytest.mark.parametrize("bad", [[0], [SIZE - 1], list(range(SIZE))])
def test_the_first_the_last_or_all_are_infeasible(bad):
    tables, nodes = normal(SIZE, 4, 4), normal(SIZE, 3, 2)
    tables[bad, :, 2], nodes[bad, 0] = -INF, -INF
    batches = (
        lambda **o: fg.SpanningTrees(tables, **TREE, **o),
        lambda **o: fg.ProjectiveTrees(tables, **TREE, **o),
        lambda **o: fg.PairwiseMRFBatch(GRAPH, nodes, normal(2, 2), **o),
    )
    gold = (HEADS, HEADS, LABELING)
    for make, structure in zip(batches, gold, strict=True):
        with pytest.raises(fg.InfeasibleError, match=r"or give infeasible='zero'$") as caught:
            make().nll(structure)
        assert list(caught.value.reasons) == bad
        made = make(infeasible="zero")
        values, gradient = made.nll(structure)
        assert np.flatnonzero(values == 0).tolist() == bad
        node = gradient if isinstance(gradient, np.ndarray) else gradient.node
        assert not node[bad].any()
        assert (made.mode()[bad] == -1).all()
        assert (made.log_partition()[bad] == 0).all()


def test_gold_of_probability_0_in_a_batch():
    scores = with_changes(normal(SIZE, 5, 5), {(1, ..., 2): -INF, (3, 0, 1): -INF})
    gold = with_changes(np.array([[0, 1, 1, 1]] * SIZE), {4: [0, 1, 1, 2], 5: [0, 0, 1, 1]})
    why = {1: "no allowed head", 3: "score of -inf", 4: "crossing arcs", 5: "2 root arcs"}
    margin = {"gold": gold, "costs": normal(SIZE, 5, 5)}
    for family, bad in ((fg.SpanningTrees, [1, 3, 5]), (fg.ProjectiveTrees, [1, 3, 4, 5])):
        strict, tolerant = family(scores, **TREE), family(scores, **TREE, infeasible="zero")
        good = [i for i in range(SIZE) if i not in bad]
        for method, given in (("nll", {"gold": gold}), ("softmax_margin", margin)):
            with pytest.raises(fg.InfeasibleError) as caught:
                getattr(strict, method)(**given)
            assert list(caught.value.reasons) == bad
            assert all(why[i] in caught.value.reasons[i] for i in bad)
            values, gradient = getattr(tolerant, method)(**given)
            assert not values[bad].any()
            assert not gradient[bad].any()
            own = family(scores[good], **TREE)
            wanted = getattr(own, method)(**{k: v[good] for k, v in given.items()})
            close([values[good], gradient[good]], wanted)
    known = with_changes(np.full((SIZE, 4), -1), {0: [0, 0, -1, -1], 3: [0, -1, -1, -1]})
    trees = fg.SpanningTrees(scores, **TREE)
    with pytest.raises(fg.InfeasibleError, match=r"^3 .*known\[0\] excludes.* item 1: dep"):
        trees.partial_nll(known)
    values, gradient = fg.SpanningTrees(scores, **TREE, infeasible="zero").partial_nll(known)
    np.testing.assert_allclose(values, 0.0, atol=1e-12)  # nothing is known of the others
    np.testing.assert_allclose(gradient, 0.0, atol=1e-12)
    assert not values[[0, 1, 3]].any()


def test_one_reason_whatever_is_computed():
    scores = np.zeros((4, 4))
    scores[:, 2] = -INF
    p = fg.SpanningTrees(scores, **TREE)
    for call in (p.log_partition, lambda: p.kbest(2), lambda: p.norm(2.0), lambda: p.renyi(0.5)):
        with pytest.raises(fg.InfeasibleError, match=r"^dependents \[2\] have no allowed head"):
            call()


def test_batches_of_more_axes_and_derived_batches():
    scores = normal(2, 3, 4, 4)
    scores[0, 1, :, 2] = scores[1, 2, 0] = -INF
    with pytest.raises(fg.InfeasibleError, match=r"item \(0, 1\): .*item \(1, 2\): "):
        fg.SpanningTrees(scores, **TREE).entropy()
    p = fg.SpanningTrees(scores, **TREE, infeasible="zero")
    assert p.lengths.tolist() == [[3, 0, 3], [3, 3, 0]]
    q_scores = normal(2, 3, 4, 4) + 1.0
    q_scores[0, 0, :, 1] = -INF
    q = fg.SpanningTrees(q_scores, **TREE, infeasible="zero")
    either = np.array([[True, True, False], [False, False, True]])
    for one, other in ((p, q), (q, p)):
        wanted = fg.SpanningTrees(one.scores[~either], **TREE).kl_and_gradients(
            fg.SpanningTrees(other.scores[~either], **TREE)
        )
        for values in (one.kl_and_gradients(other), one.cross_entropy_and_gradients(other)):
            assert not any(part[either].any() for part in values)
        assert not one.cross_entropy(other)[either].any()
        close([part[~either] for part in one.kl_and_gradients(other)], wanted)
        close(one.kl(other)[~either], wanted[0])
    again = p.with_scores(normal(2, 3, 4, 4))  # other scores, other items
    assert (again.lengths == 3).all()
    forbidden = np.ones((2, 3, 4, 4))
    forbidden[1, 1, :, 3] = 0.0  # no tree is left: its expectation is 0, not that of no words
    assert p.expected_product(forbidden)[1, 1] == 0.0


def test_other_values_of_the_option_and_invalid_scores():
    scores = with_changes(normal(2, 3, 4, 4), {(0, 1, ..., 2): -INF, (1, 2, 0): -INF})
    assert fg.best_tree(scores, **TREE, infeasible="zero")[0, 1].tolist() == [-1] * 3
    with pytest.raises(fg.InfeasibleError, match=r"^2 items .*or give infeasible='zero'$"):
        fg.best_tree(scores, **TREE)
    for wrong in (
        lambda: fg.best_tree(scores, **TREE, infeasible="skip"),
        lambda: fg.SpanningTrees(scores, **TREE, infeasible="skip"),
        lambda: fg.PairwiseMRFBatch(GRAPH, NODES, normal(2, 2), infeasible="skip"),
    ):
        with pytest.raises(fg.InvalidInputError, match="infeasible is 'skip'; choose one of"):
            wrong()
    with pytest.raises(fg.InvalidInputError, match="nan"):
        fg.SpanningTrees(with_changes(TREES, {(1, 0, 1): np.nan}), **TREE, infeasible="zero")


@pytest.mark.parametrize(
    "method", ["exact", "bp", "trw", "mean-field", "pseudolikelihood", "hinge", "cd", "cd1"]
)
def test_losses_of_fields_with_forbidden_gold(method):
    options = {"cd": {"rng": 0}, "cd1": {"rng": 0}, "hinge": {"decoder": "exact"}}.get(method, {})
    tables = with_changes(NODES, {(4, 1): 0.0, (4, 1, 1): -INF})  # item 4 has a labeling, not gold
    strict = fg.PairwiseMRFBatch(GRAPH, tables, normal(2, 2))
    with pytest.raises(fg.InfeasibleError, match=r"^3 items .*gold\[4\] has a score") as caught:
        strict.nll(LABELING, method, **options)
    assert list(caught.value.reasons) == BAD
    batch = fg.PairwiseMRFBatch(GRAPH, tables, normal(2, 2), infeasible="zero")
    values, gradient = batch.nll(LABELING, method, **options)
    assert not values[BAD].any()
    assert np.isfinite(values).all()
    assert not gradient.node[BAD].any()
    assert not gradient.edge[BAD].any()


def subclasses(kind):
    for own in kind.__subclasses__():
        if own.__module__.startswith("fstgrad.objectives") and own is not FeasibleItems:
            yield own
            yield from subclasses(own)


def numpy_objectives():
    """Each class with its arrays: scores, constants."""
    ids = np.where(GOLD == NO_ID, -(2**31), GOLD)
    labels = np.where(LABELS == NO_ID, -(2**31), LABELS)
    hypotheses = np.where(HYPOTHESES == NO_ID, -(2**31), HYPOTHESES)
    items = lattice_items([LATTICE] * SIZE, TEXTS, None, Options())
    edges = np.array([normal(2, 2)] * SIZE)
    unknown = np.full((SIZE, 3), -1)
    return {
        strings.StringObjective: (("softmax-margin", EDIT), [STRINGS], [ids]),
        ctc.CTCLikelihood: ((0,), [FRAMES], [labels, LENGTHS]),
        ctc.CTCObjective: (("softmax-margin", WITH_BLANK, 0), [FRAMES], [labels, LENGTHS]),
        lattices.LatticeObjective: (("softmax-margin", items), [ARCS], [np.arange(SIZE)]),
        lattices.LatticeQuantity: (
            ("log-partition", [LATTICE] * SIZE),
            [NO_PATHS],
            [np.arange(SIZE)],
        ),
        mrf.FieldNll: ((GRAPH, "exact", {}), [NODES, edges], [LABELING]),
        mrf.FieldLogPartition: ((GRAPH, "exact", {}), [NODES, edges], [unknown]),
        trees.TreeObjective: (("log-partition", True, False, False), [TREES], [np.full(SIZE, 3)]),
        nbest.NbestLosses: ((EDIT,), [], [hypotheses, GOLD.clip(0), COUNTS, LISTS]),
    }


def test_objectives_of_arrays():
    """Values, gradients and Hessian products of the classes, which the frameworks evaluate."""
    for found in pkgutil.iter_modules(importlib.import_module("fstgrad.objectives").__path__):
        importlib.import_module(f"fstgrad.objectives.{found.name}")
    rows = numpy_objectives()
    assert set(subclasses(Objective)) == set(rows)
    for kind, (settings, scores, constants) in rows.items():
        plain = FeasibleItems(kind(*settings), "zero")
        names = FeasibleItems(kind(*settings))
        some = [[array[GOOD] for array in arrays] for arrays in (scores, constants)]
        if not scores:
            with pytest.raises(fg.InfeasibleError, match=r"^3 items are infeasible"):
                names.measure(constants)
            table = plain.measure(constants)
            assert np.isposinf(table[BAD]).all()
            np.testing.assert_array_equal(table[GOOD], names.measure(some[1]))
            continue
        with pytest.raises(fg.InfeasibleError, match=r"^3 items are infeasible"):
            names.evaluate(scores, constants)
        values, gradients = plain.evaluate(scores, constants)
        wanted, slopes = names.evaluate(*some)
        np.testing.assert_allclose(values[GOOD], wanted, atol=1e-12)
        assert not values[BAD].any()
        pairs = list(zip(gradients, slopes, strict=True))
        if plain.is_twice_differentiable():
            along = [normal(*table.shape) for table in scores]
            products = plain.hessian_product(scores, constants, along)
            short = names.hessian_product(*some, [table[GOOD] for table in along])
            pairs += zip(products, short, strict=True)
        for table, part in pairs:
            np.testing.assert_allclose(table[GOOD], part, atol=1e-10)
            assert not table[BAD].any()


def test_a_score_that_is_nan_is_an_error_with_either_choice():
    for kind, (settings, scores, constants) in numpy_objectives().items():
        given, holder = [table.copy() for table in scores], list(constants)
        if given:
            given[0][(0,) * (given[0].ndim - 1) + (1,)] = np.nan
        else:
            holder[-1] = with_changes(holder[-1], {(0, 0): np.nan})
        for choice in ("raise", "zero"):
            objective = FeasibleItems(kind(*settings), choice)
            with pytest.raises(fg.InvalidInputError, match=r"nan|NaN"):
                _ = objective.evaluate(given, holder) if given else objective.measure(holder)


def test_estimates_keep_their_places():
    sampling = Sampling(2000)
    ids = np.where(GOLD == NO_ID, -(2**31), GOLD)
    objective = strings.StringObjective("softmax-margin", EDIT, None, None, "sampled", sampling)
    values, _ = FeasibleItems(objective, "zero").evaluate([STRINGS], [ids])
    assert [known.how == "infeasible" for known in sampling.last] == [i in BAD for i in range(SIZE)]
    assert [known.value for known in sampling.last] == values.tolist()


def test_long_lists_are_cut():
    reasons = {i: "gold needs 5 frames, has 4" for i in range(30)}
    error = fg.InfeasibleError.of_items(reasons)
    assert str(error).startswith("30 items are infeasible: gold[0] needs 5 frames, has 4; gold[1]")
    assert "gold[9] needs 5 frames, has 4; and 20 more; leave these items out" in str(error)
    assert error.reasons == reasons


class Square(Objective):
    """The squared score; negative ones are infeasible, and only the first one is named."""

    def evaluate(self, scores, constants, team=None):
        """Return the values and gradients."""
        if (scores[0] < 0).any():
            raise fg.InfeasibleError("a negative score")
        return scores[0] ** 2, [2 * scores[0]]


def test_an_objective_of_ones_own_needs_to_name_no_items():
    values, _ = FeasibleItems(Square(), "zero").evaluate([np.array([1.0, -2.0, 3.0, -4.0])], [])
    assert values.tolist() == [1.0, 0.0, 9.0, 0.0]
    with pytest.raises(fg.InfeasibleError, match="item 1: a negative score; item 3: a negative"):
        FeasibleItems(Square()).evaluate([np.array([1.0, -2.0, 3.0, -4.0])], [])
