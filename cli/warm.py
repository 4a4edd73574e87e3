"""`fstgrad doctor --warm`: compile the kernels of every family by solving small problems."""

from collections.abc import Callable

import numpy as np

import fstgrad as fg

_ABC = fg.Alphabet("abc")
_GOLD = "abcab"


def edit_losses() -> None:
    """Compute objectives over strings under losses of the tropical semiring."""
    for loss in (fg.EditDistance(_ABC), fg.SmithWaterman(_ABC), fg.Hamming(_ABC)):
        _objectives(loss)
    loss = fg.EditDistance(_ABC)
    fg.softmax_margin(np.zeros((5, 3)), _GOLD, loss.compile(_GOLD, cap=2.0))
    fg.sampled_softmax_margin(np.zeros((5, 3)), _GOLD, loss, samples=200, rng=0)


def ngram_losses() -> None:
    """Compute objectives over strings under a loss of the probability semiring."""
    _objectives(fg.NGram(_ABC, smoothing=1.0))


def _objectives(loss: fg.Loss) -> None:
    b = loss.compile(_GOLD)
    for shape in ((5, 3), (5, 4, 3), (5, 4, 4, 3)):
        scores = np.zeros(shape)
        fg.softmax_margin(scores, _GOLD, b)
        fg.risk(scores, b)
        scores[0, ..., 0] = -np.inf  # selects the kernels that use logarithms
        fg.risk(scores, b)
        distribution = fg.StringDistribution(scores, b)
        distribution.marginals()
        distribution.sample(2, 0)
        distribution.mode()
        distribution.kbest(2)


def pairs_of_strings() -> None:
    """Compute losses and alignments of pairs of strings."""
    for loss in (fg.EditDistance(_ABC), fg.GlobalAlignment(_ABC, matrix=np.eye(3), gap_open=1.0)):
        loss.pairwise(["ab", "bc"], ["abc", "b"])
        loss.align("ab", "abc")


def lattices() -> None:
    """Compute objectives over lattices."""
    lattice = fg.Lattice.from_nbest(["ab", "abc"], [0.0, -1.0], _ABC)
    fg.softmax_margin(lattice, "ab", fg.EditDistance(_ABC))
    fg.risk(lattice, "ab", fg.EditDistance(_ABC))


def models() -> None:
    """Train sequence models, and predict."""
    pairs = ["ab", "ba", "abc"]
    for alignment in ("em", "given"):
        model = fg.SequenceModel(fg.EditDistance(_ABC), alignment=alignment, epochs=1)
        model.fit(pairs, pairs)
        model.predict(pairs)


def trees() -> None:
    """Compute with spanning trees and projective trees."""
    scores = np.zeros((4, 4))
    for family in (fg.SpanningTrees, fg.ProjectiveTrees):
        trees = family(scores, single_root=True)
        trees.marginals()
        trees.entropy()
        trees.sample(2, 0)
        trees.kbest(2)
        trees.mode()


def random_fields() -> None:
    """Infer on a grid: exact, belief propagation, sampling, decoding."""
    model = fg.PairwiseMRF.grid(3, 3, node_scores=np.zeros((9, 2)), edge_scores=np.eye(2))
    model.marginals()
    model.infer("bp")
    model.infer("gibbs", samples=40, burn_in=1, rng=0)
    for method in ("max-product", "graph-cut", "icm"):
        model.decode(method)


def root_models() -> None:
    """Fit a root model of counts, and draw from it."""
    counts = np.random.default_rng(0).poisson(2.0, size=(30, 3))
    model = fg.GeneralizedRootModel(k=2, alpha=0.1).fit(counts)
    model.gibbs(2, 0, burn_in=1, thin=1)


STEPS: dict[str, Callable[[], None]] = {
    "strings, edit distance and alignments": edit_losses,
    "strings, n-grams": ngram_losses,
    "pairs of strings": pairs_of_strings,
    "lattices": lattices,
    "sequence models": models,
    "trees": trees,
    "random fields": random_fields,
    "root models": root_models,
}
