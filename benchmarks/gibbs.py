"""Gibbs sampling of Markov random fields, colour by colour: grids, edge lists, tables of edges.

The competitors are thrml (JAX on the CPU, if installed) on an edge list and plain numpy on a grid.
"""

import numpy as np
from _harness import interleaved_medians, run
from grid import THREADS, model

import fstgrad as fg
from fstgrad.mrf.sampling.chains import Chain


def gibbs_on_other_graphs(quick):
    """Time a draw on an edge list and with a table for each edge, and compare with the grid."""
    side = 64 if quick else 128
    sites, sweeps = side * side, 20
    for labels in (2, 4, 10):
        graphs = {}
        for shared in (True, False):
            tables = "one table" if shared else "own tables"
            graphs[f"grid, {tables}"] = grid = model(side, labels, shared=shared)
            graphs[f"edge list, {tables}"] = fg.PairwiseMRF(
                grid.scores.node, grid.scores.edge, grid.graph.edges
            )
        start = np.zeros(sites, np.int64)
        chains = {name: Chain(g, "chromatic", start, 1) for name, g in graphs.items()}
        times = interleaved_medians(
            {name: lambda c=chain: c.advance(sweeps) for name, chain in chains.items()}
        )
        for name in graphs:
            yield {
                "case": f"chromatic Gibbs on a {name}, {side} x {side}, {labels} labels",
                "seconds a site": times[name] / (sweeps * sites),
                "ratio grid": times[name] / times["grid, one table"],
            }


def edge_list_gibbs(quick):
    """Time chromatic Gibbs sweeps of a random graph against thrml, both on the CPU."""
    try:
        import jax
        import thrml
        from thrml.models import IsingEBM, IsingSamplingProgram, hinton_init
    except ImportError:
        return
    nodes, sweeps = (2000, 50) if quick else (10_000, 100)
    rng = np.random.default_rng(0)
    pairs = np.unique(np.sort(rng.integers(nodes, size=(2 * nodes, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    bias, weight = 0.3 * rng.normal(size=nodes), 0.3 * rng.normal(size=len(pairs))
    spin = np.array([-1.0, 1.0])
    mrf = fg.PairwiseMRF(bias[:, None] * spin, weight[:, None, None] * np.outer(spin, spin), pairs)
    chain = Chain(mrf, "chromatic", np.zeros(nodes, np.int64), 1)
    spins = [thrml.SpinNode() for _ in range(nodes)]
    edges = [(spins[a], spins[b]) for a, b in pairs.tolist()]
    ebm = IsingEBM(spins, edges, *(jax.numpy.array(x) for x in (bias, weight, 1.0)))
    colour = mrf.graph.colour
    blocks = [
        thrml.Block([spins[v] for v in np.flatnonzero(colour == c)])
        for c in range(colour.max() + 1)
    ]
    program = IsingSamplingProgram(ebm, blocks, [])
    schedule = thrml.SamplingSchedule(sweeps, 1, 1)
    start = hinton_init(jax.random.key(0), ebm, blocks, ())
    everything = [thrml.Block(spins)]
    run_peer = jax.jit(
        lambda key: thrml.sample_states(key, program, schedule, start, [], everything)
    )
    calls = {
        "mine": lambda: chain.advance(sweeps),
        "thrml": lambda: jax.block_until_ready(run_peer(jax.random.key(1))),
    }
    times = interleaved_medians(calls)
    yield {
        "case": f"chromatic Gibbs, {nodes:,} nodes, {len(pairs):,} random edges",
        "seconds a site": times["mine"] / (sweeps * nodes),
        "seconds a site thrml": times["thrml"] / (sweeps * nodes),
        "ratio thrml": times["thrml"] / times["mine"],
    }


def numpy_gibbs(grid, side, labels, rng):
    """Do one checkerboard sweep in numpy, in place."""
    node = grid.scores.node.reshape(side, side, -1)
    table = grid.scores.edge
    rows, columns = np.indices((side, side))
    for parity in (0, 1):
        scores = node.copy()
        scores[:, 1:] += table[labels[:, :-1]]
        scores[:, :-1] += table.T[labels[:, 1:]]
        scores[1:] += table[labels[:-1]]
        scores[:-1] += table.T[labels[1:]]
        chosen = (rows + columns) % 2 == parity
        noisy = scores[chosen] + rng.gumbel(size=(chosen.sum(), node.shape[2]))
        labels[chosen] = noisy.argmax(axis=1)


def sampling(quick):
    side, sweeps = (64, 20) if quick else (256, 20)
    for labels in (2, 10):
        grid = model(side, labels)
        chain = Chain(grid, "chromatic", np.zeros(side * side, np.int64), 1, THREADS)
        single = Chain(grid, "chromatic", np.zeros(side * side, np.int64), 1, 1)
        image, rng = np.zeros((side, side), int), np.random.default_rng(0)
        times = interleaved_medians(
            {
                "two": lambda c=chain: c.advance(sweeps),
                "one": lambda c=single: c.advance(sweeps),
                "numpy": lambda g=grid, x=image, r=rng: numpy_gibbs(g, side, x, r),
            }
        )
        sites = side * side
        yield {
            "case": f"chromatic Gibbs {side} x {side}, {labels} labels",
            "seconds a site": times["two"] / (sweeps * sites),
            "seconds a site, one thread": times["one"] / (sweeps * sites),
            "seconds a site numpy": times["numpy"] / sites,
            "ratio numpy": times["numpy"] * sweeps / times["two"],
        }


def rows(quick):
    yield from gibbs_on_other_graphs(quick)
    yield from edge_list_gibbs(quick)
    yield from sampling(quick)


if __name__ == "__main__":
    run("gibbs: chromatic Gibbs sampling", rows)
