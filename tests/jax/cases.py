"""One row for each objective of `fstgrad.jax`, beside the PyTorch function it equals."""

import numpy as np
import pytest

import fstgrad as fg

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
import jax.numpy as jnp  # noqa: E402

import fstgrad.jax as fgj  # noqa: E402
import fstgrad.torch as fgt  # noqa: E402
from fstgrad.mrf.dense import Kernel  # noqa: E402

ABC = fg.Alphabet("abc")
EDIT = fg.EditDistance(ABC)
GOLD = np.array([[0, 1, 2, 0], [2, -100, 1, -100]])
WRITTEN = np.array([[1, 2], [2, -100]])
HYPOTHESES = np.array([[[0, 1, 2], [0, 1, -100]], [[2, 1, -100], [1, -100, -100]]])
HEADS = np.array([[0, 1, 2], [2, 0, 2]])
KNOWN = np.array([[-1, 1, -1], [-1, -1, 2]])
LABELED = np.stack([HEADS, np.array([[0, 1, 1], [1, 0, 0]])], axis=-1)
COSTS = np.linspace(-1, 2, 2 * 4 * 4).reshape(2, 4, 4)
FEATURES = np.linspace(-1, 1, 2 * 4 * 4 * 2).reshape(2, 4, 4, 2)
GRAPH = fg.PairwiseMRF(np.zeros((3, 2)), np.zeros((2, 2)), np.array([[0, 1], [1, 2]]))
PICTURES = np.random.default_rng(7).random((2, 4, 5))
KERNELS = [Kernel(0.7, 1.5), Kernel(0.5, 2.0, 0.3)]
LABELS = np.array([[0, 1, -100], [1, 0, 0]])
LATTICES = [
    fg.Lattice.from_nbest(["ab", "abc", "ca"], np.zeros(3), ABC),
    fg.Lattice.from_nbest(["b", "cb"], np.zeros(2), ABC),
]
ARCS = [lattice.num_arcs for lattice in LATTICES]
TEXTS = ["abc", "cb"]


def t(array):
    return torch.tensor(array)


def by_arcs(scores):
    return [row[:size] for row, size in zip(scores, ARCS, strict=True)]


def tree(name, *constants, shapes=((2, 4, 4),), **family):
    """A row of a function of trees."""
    family = {"single_root": True, **family}
    return (
        list(shapes),
        lambda *s: getattr(fgj, name)(*s, *constants, **family),
        lambda *s: getattr(fgt, name)(*s, *map(t, constants), **family),
    )


def string(name, *given, shape=(2, 4, 4, 3), gold=GOLD, **options):
    """A row of a function of strings."""
    return (
        [shape],
        lambda s: getattr(fgj, name)(s, gold, *given, **options),
        lambda s: getattr(fgt, name)(s, t(gold), *given, reduction="none", **options),
    )


def lattice(name, *loss, **options):
    """A row of a function of lattices."""
    return (
        [(2, max(ARCS))],
        lambda s: getattr(fgj, name)(s, LATTICES, TEXTS, *loss, **options),
        lambda s: getattr(fgt, name)(
            by_arcs(s), LATTICES, TEXTS, *loss, reduction="none", **options
        ),
    )


def quantity(name):
    """A row of a quantity of the paths of lattices."""
    return (
        [(2, max(ARCS))],
        lambda s: getattr(fgj, name)(s, LATTICES),
        lambda s: getattr(fgt, name)(by_arcs(s), LATTICES),
    )


def field(method="exact"):
    """A row of -log p of random fields."""
    return (
        [(2, 3, 2), (2, 2)],
        lambda n, e: fgj.mrf_nll(n, e, LABELS, GRAPH, method=method),
        lambda n, e: fgt.mrf_nll(n, e, t(LABELS), GRAPH, method=method, reduction="none"),
    )


def drawn(of):
    """Settings of samples, new ones for each call."""
    return of.Sampling(samples=1000, rng=3)


# name: shapes of the scores, the JAX function, the PyTorch function
OBJECTIVES = {
    "softmax_margin": string("softmax_margin", EDIT),
    "softmax_margin cap": string("softmax_margin", EDIT, shape=(2, 4, 3), cap=1.0),
    "softmax_margin band": string("softmax_margin", EDIT, shape=(2, 4, 3), band=1),
    "softmax_margin prune": string("softmax_margin", EDIT, shape=(2, 4, 3), prune=0.0),
    "softmax_margin lengths": string("softmax_margin", EDIT, lengths=[3, 1]),
    "softmax_margin sampled": (
        [(2, 4, 3)],
        lambda s: fgj.softmax_margin(s, GOLD, EDIT, method="sampled", sampling=drawn(fgj)),
        lambda s: fgt.softmax_margin(
            s, t(GOLD), EDIT, method="sampled", sampling=drawn(fgt), reduction="none"
        ),
    ),
    "risk": string("risk", EDIT),
    "crf_nll": string("crf_nll"),
    "ctc_nll": string("ctc_nll", shape=(2, 5, 3), gold=WRITTEN),
    "ctc_softmax_margin": string("ctc_softmax_margin", EDIT, shape=(2, 5, 3), gold=WRITTEN),
    "ctc_risk": string("ctc_risk", EDIT, shape=(2, 5, 3), gold=WRITTEN, lengths=[5, 4]),
    "linear_chain_nll": (
        [(2, 4, 3), (3, 3), (3,), (3,)],
        lambda e, s, a, b: fgj.linear_chain_nll(e, s, GOLD, start=a, end=b),
        lambda e, s, a, b: fgt.linear_chain_nll(e, s, t(GOLD), start=a, end=b, reduction="none"),
    ),
    "nbest_risk": (
        [(2, 2)],
        lambda s: fgj.nbest_risk(s, HYPOTHESES, GOLD, EDIT, [2, 2]),
        lambda s: fgt.nbest_risk(s, t(HYPOTHESES), t(GOLD), EDIT, [2, 2], reduction="none"),
    ),
    "lattice_softmax_margin": lattice("lattice_softmax_margin", EDIT),
    "lattice_risk": lattice("lattice_risk", EDIT, band=1),
    "lattice_crf_nll": lattice("lattice_crf_nll"),
    "lattice_log_partition": quantity("lattice_log_partition"),
    "lattice_entropy": quantity("lattice_entropy"),
    "lattice_marginals": (
        [(2, max(ARCS))],
        lambda s: jnp.sin(fgj.lattice_marginals(s, LATTICES)).sum(1),
        lambda s: torch.stack(
            [row.sin().sum() for row in fgt.lattice_marginals(by_arcs(s), LATTICES)]
        ),
    ),
    "spanning_tree_log_partition": tree("spanning_tree_log_partition", lengths=[3, 2]),
    "spanning_tree_nll": tree("spanning_tree_nll", HEADS),
    "spanning_tree_nll labeled": tree(
        "spanning_tree_nll", LABELED, shapes=[(2, 4, 4, 2)], labeled=True, single_root=False
    ),
    "spanning_tree_nll projective": tree("spanning_tree_nll", HEADS, projective=True),
    "spanning_tree_partial_nll": tree("spanning_tree_partial_nll", KNOWN),
    "spanning_tree_entropy": tree("spanning_tree_entropy"),
    "spanning_tree_entropy labeled": tree(
        "spanning_tree_entropy", shapes=[(2, 4, 4, 2)], labeled=True, projective=True
    ),
    "spanning_tree_kl": tree("spanning_tree_kl", shapes=[(2, 4, 4)] * 2),
    "spanning_tree_kl labeled": tree(
        "spanning_tree_kl", shapes=[(2, 4, 4, 2)] * 2, labeled=True, lengths=[2, 3]
    ),
    "spanning_tree_risk": tree("spanning_tree_risk", COSTS),
    "spanning_tree_generalized_expectation": tree(
        "spanning_tree_generalized_expectation", FEATURES, np.array([0.5, 0.1]), lengths=[3, 0]
    ),
    "mrf_nll": field(),
    "mrf_nll bp": field("bp"),
    "mrf_log_partition": (
        [(2, 3, 2), (2, 2, 2)],
        lambda n, e: fgj.mrf_log_partition(n, e, GRAPH),
        lambda n, e: fgt.mrf_log_partition(n, e, GRAPH),
    ),
    "mrf_dense_marginals": (
        [(2, 3, 4, 5), (2,), (3, 3)],
        lambda n, w, c: jnp.sin(
            fgj.mrf_dense_marginals(n, PICTURES, KERNELS, w, compatibility=c)
        ).sum((1, 2, 3)),
        lambda n, w, c: (
            fgt.mrf_dense_marginals(n, t(PICTURES), KERNELS, w, compatibility=c)
            .sin()
            .sum((1, 2, 3))
        ),
    ),
    "mrf_marginals": (
        [(2, 3, 2), (2, 2)],
        lambda n, e: jnp.sin(fgj.mrf_marginals(n, e, GRAPH).edge).sum((1, 2, 3)),
        lambda n, e: fgt.mrf_marginals(n, e, GRAPH).edge.sin().sum((1, 2, 3)),
    ),
    "spanning_tree_marginals": (
        [(2, 4, 4)],
        lambda s: jnp.sin(fgj.spanning_tree_marginals(s, single_root=False)).sum((1, 2)),
        lambda s: fgt.spanning_tree_marginals(s, single_root=False).sin().sum((1, 2)),
    ),
}
# those whose second derivative is missing, in the words of the error
ONCE = ["risk", "sampled", "lattice_softmax", "lattice_crf", "tree_entropy", "_kl", "generalized"]


def made(name, seed=0):
    rng = np.random.default_rng(seed)
    shapes, mine, other = OBJECTIVES[name]
    return [rng.normal(size=shape) for shape in shapes], mine, other
