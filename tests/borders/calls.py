"""Calls of what no example calls, or calls only beside what came before it."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import fstgrad as fg
from fstgrad.grammars import Grammar
from tests.fuzz.examples import Choice
from tests.fuzz.wrong import Call


def more_calls(chosen: Choice) -> Iterator[Call]:
    """Yield calls that work, with all the arguments that the columns need."""
    if "fstgrad.grammars" in chosen:
        grammar = Grammar.load("keyboard")
        yield call("grammars.Grammar.__call__", grammar.__call__, y="ab", target="b")
        abc = fg.Alphabet("ab")
        yield call(
            "fstgrad.sampled_risk", fg.sampled_risk, scores=np.zeros((3, 2)),
            target=np.array([0, 1, 0]), loss=fg.EditDistance(abc), samples=5, rng=0,
        )  # fmt: skip
        yield call(
            "Lattice.from_nbest", fg.Lattice.from_nbest,
            hypotheses=["ab", "b"], scores=np.array([0.0, 0.5]), alphabet=abc,
        )  # fmt: skip
    if "fstgrad.torch" in chosen:
        yield from of_torch()
    if "fstgrad.jax" in chosen:
        import jax

        import fstgrad.jax as fgj

        yield from of_framework("jax", fgj, np.asarray, {"key": jax.random.key(0)})


def call(name: str, function: Callable[..., Any], **arguments: Any) -> Call:
    return Call(name, function, arguments)


def of_framework(
    name: str, module: Any, tensor: Callable[..., Any], source: dict[str, Any]
) -> Iterator[Call]:
    """Yield calls that PyTorch and JAX have alike; `source` is that of random numbers."""
    rng = np.random.default_rng(0)
    loss = fg.EditDistance(fg.Alphabet("ab"))
    scores, steps = tensor(rng.normal(size=(2, 3, 2))), tensor(rng.normal(size=(2, 2)))
    mask, ends = tensor(np.array([[True] * 3, [True, True, False]])), tensor(rng.normal(size=2))
    chain = module.CRF(scores, steps, mask)
    yield call(
        f"{name}.CRF.__init__", module.CRF,
        emissions=scores, transitions=steps, mask=mask, start=ends, end=ends,
    )  # fmt: skip
    yield call(f"{name}.CRF.nbest", chain.nbest, k=2)
    yield call(f"{name}.CRF.sample", chain.sample, k=2, **source)
    gold = tensor(np.array([[0, 1, 0], [1, 1, -100]]))
    yield call(
        f"{name}.CRF.nll", chain.nll,
        gold=gold, ignore_index=-100, infeasible="raise",
    )  # fmt: skip
    strings = {"scores": scores, "lengths": [3, 2]}
    yield call(f"{name}.Strings.__init__", module.Strings, **strings)
    made = module.Strings(**strings)
    yield call(f"{name}.Strings.mbr", made.mbr, loss=loss, candidates=4, samples=50, **source)
    lattices = [fg.Lattice.from_nbest(["ab", "b"], [0.0, 0.0], fg.Alphabet("ab"))]
    arcs = [tensor(rng.normal(size=lattices[0].num_arcs))]
    paths = module.LatticeStrings(arcs, lattices)
    yield call(
        f"{name}.LatticeStrings.__init__", module.LatticeStrings, scores=arcs, lattices=lattices
    )
    yield call(f"{name}.LatticeStrings.mbr", paths.mbr, loss=loss, candidates=2)
    yield call(f"{name}.LatticeStrings.sample", paths.sample, k=2, **source)
    table = tensor(rng.normal(size=(2, 4, 4)))
    yield call(
        f"{name}.Trees.__init__", module.Trees,
        scores=table, single_root=True, lengths=[3, 2], labeled=False,
    )  # fmt: skip
    graph = fg.PairwiseMRF.grid(2, 2, np.zeros((4, 2)), np.zeros((2, 2)))
    pixels, pairs = tensor(rng.normal(size=(1, 4, 2))), tensor(rng.normal(size=(2, 2)))
    fields = {"node_scores": pixels, "edge_scores": pairs, "graph": graph}
    yield call(f"{name}.RandomFields.__init__", module.RandomFields, **fields)
    yield call(f"{name}.RandomFields.decode", module.RandomFields(**fields).decode, method="exact")
    yield call(f"{name}.RandomFields.mbr", module.RandomFields(**fields).mbr, method="exact")


def of_torch() -> Iterator[Call]:
    """Yield calls of PyTorch, whose layers draw their parameters."""
    import torch

    import fstgrad.torch as fgt

    yield from of_framework("torch", fgt, torch.from_numpy, {"rng": 0})
    layer = fgt.nn.CRF(2, batch_first=True)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
    emissions, tags = torch.linspace(0, 1, 12).reshape(2, 3, 2), torch.tensor([[0, 1, 0]] * 2)
    given = {"emissions": emissions, "tags": tags, "loss": 1 - torch.eye(2)}
    choices = {"reduction": "sum", "infeasible": "raise"}
    yield call("torch.nn.CRF.risk", layer.risk, **given, **choices)
    yield call("torch.nn.CRF.softmax_margin", layer.softmax_margin, **given, **choices)
    yield call("torch.nn.CRF.nbest", layer.nbest, emissions=emissions, k=2)
    chain = fgt.CRF(emissions, torch.tensor([[0.5, -0.5], [0.1, 0.2]]))
    yield call("torch.CRF.risk", chain.risk, gold=tags, loss=given["loss"], **choices)
    yield call(
        "torch.CRF.softmax_margin", chain.softmax_margin, gold=tags, loss=given["loss"], **choices
    )
    other = layer.distribution(emissions + 0.1)
    yield call("torch.nn.CRF.kl", layer.kl, emissions=emissions, other=other)
