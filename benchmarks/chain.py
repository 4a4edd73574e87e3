"""log Z and all marginals of a dense chain of T = 100 positions: scores (T, L + 1, L), no loss.

JAX runs value_and_grad of a jitted lax.scan in float64, in logarithms and in scaled probabilities;
its compilation is not timed.  "numpy" is this project's implementation without kernels.  "floor" is
the work that every float64 program must do: one exponential per score, the products of both passes
by BLAS, and the product that gives the marginals.
"""

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from _harness import Row, interleaved_medians, one_thread, openfst_in_process, run, seconds_of

one_thread()

import numpy as np  # noqa: E402

import fstgrad as fg  # noqa: E402
from fstgrad import openfst  # noqa: E402
from fstgrad.losses.reference import gradient_terms  # noqa: E402
from fstgrad.strings.passes import Passes  # noqa: E402
from fstgrad.strings.paths import loss_weights  # noqa: E402
from fstgrad.strings.solve import no_loss  # noqa: E402

Call = Callable[[], Any]
MOST_LABELS = 50  # torch-struct stores at least T L^3 numbers: gigabytes at L = 200


def compiled(scores: np.ndarray) -> Call:
    def call() -> tuple[float, np.ndarray]:
        distribution = fg.StringDistribution(scores)
        return distribution.log_partition(), distribution.marginals()

    return call


def plain(scores: np.ndarray) -> Call:
    paths = loss_weights(no_loss(scores.shape[-1], len(scores)), scale=1.0)

    def call() -> tuple[float, np.ndarray]:
        passes = Passes(scores, paths)
        return passes.forward()[0], passes.backward()[0]

    return call


def floor(scores: np.ndarray) -> Call:
    length, contexts, size = scores.shape
    alpha = np.full((length, 1, contexts), 1 / contexts)
    beta = np.full((length, size, 1), 1 / size)
    forward, backward = np.empty((length, 1, size)), np.empty((length, contexts, 1))

    def call() -> np.ndarray:
        table = np.exp(scores)
        np.matmul(alpha, table, out=forward)
        np.matmul(table, beta, out=backward)
        table *= alpha.transpose(0, 2, 1)
        table *= beta.transpose(0, 2, 1)
        return table

    return call


def jax_scans(scores: np.ndarray) -> dict[str, Call]:
    try:
        jax = importlib.import_module("jax")
    except ImportError:
        return {}
    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy

    def log_space(table: Any) -> Any:
        def step(alpha: Any, level: Any) -> tuple[Any, None]:
            return jax.nn.logsumexp(alpha[:, None] + level, axis=0), None

        return jax.nn.logsumexp(jax.lax.scan(step, table[0, -1], table[1:, :-1])[0])

    def scaled(table: Any) -> Any:
        def step(carry: Any, level: Any) -> tuple[Any, None]:
            alpha, log_scale = carry
            largest = level.max()
            after = alpha @ jnp.exp(level - largest)
            total = after.sum()
            return (after / total, log_scale + jnp.log(total) + largest), None

        largest = table[0, -1].max()
        first = jnp.exp(table[0, -1] - largest)
        total = first.sum()
        start = (first / total, jnp.log(total) + largest)
        return jax.lax.scan(step, start, table[1:, :-1])[0][1]

    table = jnp.asarray(scores)
    calls = {}
    for name, function in (("JAX log", log_space), ("JAX scaled", scaled)):
        gradient = jax.jit(jax.value_and_grad(function))
        calls[name] = lambda g=gradient: jax.block_until_ready(g(table))
    return calls


def torch_struct(scores: np.ndarray) -> dict[str, Call]:
    try:
        torch, struct = importlib.import_module("torch"), importlib.import_module("torch_struct")
    except ImportError:
        return {}
    if scores.shape[-1] > MOST_LABELS:
        return {}
    torch.set_num_threads(1)
    # potentials (batch, T - 1, L, L): edge[t, y_{t+1}, y_t]; edge 0 includes the first scores
    edges = scores[1:, :-1].copy()
    edges[0] += scores[0, -1][:, None]
    potentials = torch.tensor(np.swapaxes(edges, 1, 2)[None], dtype=torch.float64)

    def call() -> Any:
        chain = struct.LinearChainCRF(potentials.clone())
        return chain.partition, chain.marginals

    return {"torch-struct": call}


def rows(quick: bool) -> Iterator[Row]:
    for size in (10, 50) if quick else (10, 50, 200):
        scores = np.random.default_rng(0).normal(size=(100, size + 1, size))
        ours = compiled(scores)
        others = {"numpy": plain(scores), **jax_scans(scores), **torch_struct(scores)}
        value, marginals = ours()
        for name, call in others.items():
            their_value, their_marginals = call()
            if name != "torch-struct":  # its marginals have a different layout
                np.testing.assert_allclose(np.asarray(their_marginals), marginals, atol=1e-10)
            np.testing.assert_allclose(float(their_value), value, rtol=1e-10)
        calls = {"fstgrad": ours, "floor": floor(scores), **others}
        medians = interleaved_medians(calls, 5 if quick else 11)
        if size <= MOST_LABELS:
            b = no_loss(size, 100)
            loss = openfst.with_arc_type(b.to_fst(), "log64")
            medians["OpenFst log64"] = seconds_of(
                lambda: gradient_terms(scores, loss, b.alphabet)  # noqa: B023
            )
        for name, seconds in medians.items():
            yield {
                "L": size,
                "program": name,
                "seconds": seconds,
                "times fstgrad": seconds / medians["fstgrad"],
            }


if __name__ == "__main__":
    openfst_in_process()
    run("log Z and marginals of a dense chain, T = 100, float64", rows)
