"""Marginals by Markov chain Monte Carlo, with standard errors.

The standard error of a marginal is computed from the means of batches within chains, and its R-hat
from the means of chains (Gelman and Rubin 1992).  The draws of a chain depend only on its key, so
results with the same seed do not depend on the number of threads.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray, Seed, generator, positive_integer
from fstgrad.core.errors import InvalidInputError, NotSupportedError
from fstgrad.core.estimates import lugsail_variance, r_hat, variance_of_mean
from fstgrad.core.uninitialized import empty
from fstgrad.mrf import kernels
from fstgrad.mrf.resources import ThreadRanges
from fstgrad.mrf.result import Inference
from fstgrad.mrf.sampling.chains import (
    Chain,
    Sampler,
    TemperedChain,
    new_key,
    new_keys,
    start_labels,
)
from fstgrad.mrf.scored_graph import ScoredGraph

Progress = Callable[[int, float], None]
CONVERGED_R_HAT = 1.05


@dataclass
class Tally:
    """The statistics of one chain.

    node : (I, C), sum over the batches of the mean over the batch.
    squares : (I, C), sum over the batches of the squared mean.
    pair_squares : (I, C), sum over the pairs of successive batches of the squared mean of a pair.
    edge : (E, C, C), counts over all draws; (0, C, C) if pairs are not counted.
    """

    node: FloatArray
    squares: FloatArray
    pair_squares: FloatArray
    edge: FloatArray


def sample_marginals(
    model: ScoredGraph,
    *,
    sampler: Sampler | Literal["tempered"],
    samples: int = 1000,
    burn_in: int = 100,
    thin: int = 1,
    chains: int = 4,
    batches: int = 40,
    rng: Seed = None,
    initial: npt.ArrayLike | None = None,
    edges: bool = True,
    threads: int = 1,
    progress: Progress | None = None,
) -> Inference:
    """Return marginals as means over the draws of several chains.

    There are no marginals of larger factors, and no estimate of log Z (NaN).

    Parameters
    ----------
    sampler : str
        See `fstgrad.mrf.sampling.chains.Chain`; "tempered" is `TemperedChain`, whose sweeps cost
        twenty times as much and move between distant modes.
    samples : int
        Draws that each chain keeps.
    burn_in, thin : int
        A chain first makes `burn_in` sweeps, then `thin` sweeps before each draw.
    chains : int
        Independent chains, each from its own random start.
    batches : int
        Batches per chain, an even number from 4 to `samples`; their means give the standard error.
    rng : Generator, int or None
    initial : (I,) integers, optional
        The initial labeling of all chains; needed if hard zeros make an allowed labeling hard to
        find.
    edges : bool
        Whether to count pairs, which needs E * C * C numbers for each chain.
    threads : int
        The number of threads, over chains or within the colours of a single chromatic chain.
    progress : callable
        Called with (draws of the first chain, share of them done).

    Raises
    ------
    InvalidInputError
        An option is out of range, or `initial` is a forbidden labeling.
    InfeasibleError
        Every labeling is forbidden.
    NotSupportedError
        The sampler does not support the model, no allowed start was found, or edge marginals are
        read after edges=False.

    Notes
    -----
    With hard zeros in edges or factors, a chain may be unable to reach every allowed labeling,
    whatever its length; R-hat shows this only if the chains disagree.  On forests, "blocked" draws
    all nodes jointly and reaches every labeling; else use method "exact".

    Draws of a chain depend on each other, and the standard error accounts for this.  A sweep of
    "gibbs" skips a given node with probability r = (1 - 1/I)^I, about 1/e.  Even without edges, the
    variance of a marginal is therefore (1 + r) / (1 - r) = 2.16 times that of independent draws,
    and its standard error 1.47 times.
    """
    samples = positive_integer("samples", samples)
    thin, chains = positive_integer("thin", thin), positive_integer("chains", chains)
    burn_in = positive_integer("burn_in", burn_in, minimum=0)
    if positive_integer("batches", batches, minimum=4) > samples or batches % 2:
        raise InvalidInputError(
            f"batches is {batches} and samples {samples}; use an even number of batches and at "
            "least as many samples"
        )
    begun = time.perf_counter()
    random = generator(rng)
    keys = new_keys(random, chains)
    starts = [start_labels(model, random, initial) for _ in range(chains)]
    cuts = [samples * k // batches for k in range(batches + 1)]
    workers = ThreadRanges(chains, threads)
    inner = threads if chains == 1 else 1

    def run(low: int, high: int) -> list[Tally]:
        return [
            _run_chain(
                make_chain(model, sampler, starts[c], keys[c], inner),
                burn_in,
                thin,
                cuts,
                edges,
                progress if c == 0 else None,
            )
            for c in range(low, high)
        ]

    with workers:
        tallies = [tally for part in workers(run) for tally in part]
    return _summary(model, sampler, tallies, batches, samples, edges, begun)


def make_chain(
    model: ScoredGraph,
    sampler: Sampler | Literal["tempered"],
    labels: IntArray,
    key: int,
    threads: int = 1,
) -> Chain | TemperedChain:
    """Return a chain of the named sampler, started at `labels` (I,)."""
    if sampler == "tempered":
        return TemperedChain(model, labels, key)
    return Chain(model, sampler, labels, key, threads)


def _run_chain(
    chain: Chain | TemperedChain,
    burn_in: int,
    thin: int,
    cuts: list[int],
    edges: bool,
    progress: Progress | None,
) -> Tally:
    model = chain.model
    pairs = model.graph.edges if edges else np.zeros((0, 2), np.int64)
    size = model.num_labels
    edge = np.zeros((len(pairs), size, size))
    shape = model.scores.node.shape
    tally = Tally(np.zeros(shape), np.zeros(shape), np.zeros(shape), edge)
    previous = np.zeros(shape)
    chain.advance(burn_in)
    for number, (low, high) in enumerate(pairwise(cuts)):
        mean = np.zeros(shape)
        for _ in range(low, high):
            chain.advance(thin)
            kernels.sites.count_parts(chain.labels, pairs, 1.0, mean, edge)
        mean /= high - low
        tally.node += mean
        tally.squares += mean**2
        if number % 2:
            tally.pair_squares += ((previous + mean) / 2) ** 2
        previous = mean
        if progress is not None:
            progress(high, high / cuts[-1])
    return tally


def _summary(
    model: ScoredGraph,
    sampler: str,
    tallies: list[Tally],
    batches: int,
    samples: int,
    edges: bool,
    begun: float,
) -> Inference:
    from scipy.special import stdtrit

    count = len(tallies) * batches
    node = sum((t.node for t in tallies), np.zeros(model.scores.node.shape)) / count
    batch = variance_of_mean(node, np.sum([t.squares for t in tallies], axis=0), count)
    pairs = variance_of_mean(node, np.sum([t.pair_squares for t in tallies], axis=0), count // 2)
    variance = lugsail_variance(batch, pairs)
    # the error is at least 1 / draws: an event that was never drawn may have that probability
    draws = len(tallies) * samples
    error = np.maximum(np.sqrt(variance), 1.0 / draws)
    error[model.scores.node == -np.inf] = 0.0
    # degrees of freedom of the pairs of batches of one chain: conservative
    quantile = float(stdtrit(max(1, batches // 2 - 1), 0.975))
    uncertain = (node > 0) & (node < 1)
    effective = (node * (1 - node))[uncertain] / error[uncertain] ** 2
    means = np.array([t.node / batches for t in tallies])
    within = (means * (1 - means)).mean(axis=0) * samples / max(1, samples - 1)
    reduction = float(r_hat(means, within, samples).max(initial=1.0))

    def edge_source(low: int, high: int) -> FloatArray:
        if not edges:
            raise NotSupportedError("pairs were not counted; call infer with edges=True")
        total = sum((t.edge[low:high] for t in tallies), np.zeros(()))
        return total / draws

    return Inference(
        sampler, float("nan"), "none", node, edge_source, model.graph.num_edges,
        converged=reduction < CONVERGED_R_HAT, iterations=draws,
        seconds=time.perf_counter() - begun, standard_error=error,
        margin=quantile * error,
        effective_samples=float(effective.min(initial=draws)), r_hat=reduction,
    )  # fmt: skip


def draw(
    model: ScoredGraph,
    k: int,
    *,
    sampler: Sampler | Literal["tempered"] = "chromatic",
    burn_in: int = 100,
    thin: int = 10,
    rng: Seed = None,
    initial: npt.ArrayLike | None = None,
    threads: int = 1,
) -> IntArray:
    """Return k labelings (k, I) int64 of one chain, `thin` sweeps apart.

    The draws are dependent and approximate; `PairwiseMRF.sample` draws exactly, if possible.  With
    hard zeros in edges or factors, they may all be from one part of the labelings (see the notes of
    `sample_marginals`).  Options and errors as in `sample_marginals`.
    """
    burn_in = positive_integer("burn_in", burn_in, minimum=0)
    thin = positive_integer("thin", thin)
    random = generator(rng)
    start = start_labels(model, random, initial)
    chain = make_chain(model, sampler, start, new_key(random), threads)
    chain.advance(burn_in)
    draws = empty((positive_integer("k", k), model.num_nodes), np.int64)
    for row in draws:
        chain.advance(thin)
        row[...] = chain.labels
    return draws
