"""Markov random fields on pixel grids: belief propagation, minimum cuts, pseudolikelihood.

Unless a case says otherwise, fstgrad and its competitors run with two threads.  The competitors of
belief propagation are PGMax (if installed; float32, JAX), and the same flooding schedule in plain
torch (log domain) and in plain numpy (products of exponentials without protection against zeros or
underflow: the least work that array code can do).
"""

import numpy as np
from _harness import interleaved_medians, median_seconds, run, seconds_of

import fstgrad as fg
from fstgrad.mrf.messages.tree_cover import tree_cover
from fstgrad.mrf.messages.tree_reweighted import tree_messages

THREADS = 2
ITERATIONS = 50


def model(side, labels, *, shared=True):
    rng = np.random.default_rng(0)
    edges = 2 * side * (side - 1)
    shape = (labels, labels) if shared else (edges, labels, labels)
    return fg.PairwiseMRF.grid(
        side, side, rng.normal(size=(side * side, labels)), 0.3 * rng.normal(size=shape)
    )


def fstgrad_bp(grid, iterations=ITERATIONS):
    return grid.infer("bp", max_iter=iterations, tol=0.0, threads=THREADS)


def numpy_bp(grid, side, iterations=ITERATIONS):
    """Return node beliefs (side, side, C) by flooding with messages from four directions."""
    node = np.exp(grid.scores.node).reshape(side, side, -1)
    table = np.exp(grid.scores.edge)
    left, right, up, down = (np.ones_like(node) for _ in range(4))
    for _ in range(iterations):
        base_h, base_v = node * up * down, node * left * right
        sent = (
            (base_h * left)[:, :-1] @ table,
            (base_h * right)[:, 1:] @ table.T,
            (base_v * up)[:-1] @ table,
            (base_v * down)[1:] @ table.T,
        )
        sent = [m / m.max(axis=-1, keepdims=True) for m in sent]
        left[:, 1:], right[:, :-1], up[1:], down[:-1] = sent
    beliefs = node * left * right * up * down
    return beliefs / beliefs.sum(axis=-1, keepdims=True)


def torch_bp(grid, side, threads=1, iterations=ITERATIONS):
    """Do the same with log messages: matrix products after subtracting the maximum."""
    import torch

    torch.set_num_threads(threads)
    node = torch.tensor(grid.scores.node).reshape(side, side, -1)
    table = torch.tensor(np.exp(grid.scores.edge))
    left, right, up, down = (torch.zeros_like(node) for _ in range(4))

    def send(said, weights):
        said = said - said.amax(dim=-1, keepdim=True)
        message = torch.log(torch.exp(said) @ weights)
        return message - message.amax(dim=-1, keepdim=True)

    for _ in range(iterations):
        total = node + left + right + up + down
        sent = (
            send((total - right)[:, :-1], table),
            send((total - left)[:, 1:], table.T),
            send((total - down)[:-1], table),
            send((total - up)[1:], table.T),
        )
        left[:, 1:], right[:, :-1], up[1:], down[:-1] = sent
    return torch.softmax(node + left + right + up + down, dim=-1).numpy()


def pgmax_bp(grid, side):
    """Return a call that runs PGMax on a graph built before; None if it is not installed."""
    try:
        import jax
        from pgmax import fgraph, fgroup, infer, vgroup
    except ImportError:
        return None
    if not hasattr(jax.lib, "xla_bridge"):  # PGMax 0.6.1 needs the module of older JAX
        from jax.extend import backend

        setattr(jax.lib, "xla_bridge", backend)  # noqa: B010
    labels = grid.num_labels
    pixels = vgroup.NDVarArray(num_states=labels, shape=(side, side))
    graph = fgraph.FactorGraph(variable_groups=pixels)
    pairs = [
        [pixels[divmod(a, side)], pixels[divmod(b, side)]] for a, b in grid.graph.edges.tolist()
    ]
    graph.add_factors(
        fgroup.PairwiseFactorGroup(
            variables_for_factors=pairs, log_potential_matrix=grid.scores.edge
        )
    )
    bp = infer.BP(graph.bp_state, temperature=1.0)
    arrays = bp.init(evidence_updates={pixels: grid.scores.node.reshape(side, side, labels)})

    def call():
        result = bp.run(arrays, num_iters=ITERATIONS, damping=0.0)
        marginals = infer.get_marginals(bp.get_beliefs(result))[pixels]
        return np.asarray(jax.block_until_ready(marginals))

    return call


def belief_propagation(quick):
    for side, labels in ((64, 2), (64, 10), (256, 2), (256, 10)):
        if quick and side > 64:
            continue
        grid = model(side, labels)
        calls = {
            "fstgrad": lambda g=grid: fstgrad_bp(g),
            "numpy": lambda g=grid, s=side: numpy_bp(g, s),
            "torch": lambda g=grid, s=side: torch_bp(g, s),
        }
        if (pgmax := pgmax_bp(grid, side)) is not None:
            calls["pgmax"] = pgmax
        reference = fstgrad_bp(grid).node
        # time slow ones once; PGMax compiles in the call that checks its values
        for name in [n for n in calls if n != "fstgrad"]:
            found = np.asarray(calls[name]()).reshape(reference.shape)
            np.testing.assert_allclose(found, reference, atol=1e-3 if name == "pgmax" else 1e-9)
        slow = {n: seconds_of(calls[n]) for n in ("torch", "pgmax") if n in calls}
        two = seconds_of(lambda g=grid, s=side: torch_bp(g, s, THREADS))
        slow["torch"] = min(slow["torch"], two)  # on some machines, two threads are slower than one
        fast = interleaved_medians({n: calls[n] for n in ("fstgrad", "numpy")})
        mine = fast["fstgrad"]
        yield {
            "case": f"BP {side} x {side}, {labels} labels, {ITERATIONS} iterations",
            "seconds": mine,
            "seconds numpy": fast["numpy"],
            "seconds torch": slow["torch"],
            "seconds pgmax": slow.get("pgmax"),
            "ratio numpy": fast["numpy"] / mine,
            "ratio torch": slow["torch"] / mine,
            "ratio pgmax": slow["pgmax"] / mine if "pgmax" in slow else None,
        }


def other_graphs(quick):
    """Time a message on other graphs, and compare with the 4-connected grid.

    For tree-reweighted messages, only the sweeps are timed, not the final bound.
    """
    side = 64 if quick else 128
    rng = np.random.default_rng(1)
    for labels, shared in ((2, True), (2, False), (3, True), (4, True), (10, True), (10, False)):
        grid = model(side, labels, shared=shared)
        scores = grid.scores
        eight = grid_tables = scores.edge
        if not shared:
            more = 0.3 * rng.normal(size=(2 * (side - 1) ** 2, labels, labels))
            eight = np.concatenate((grid_tables, more))
        graphs = {
            "4-connected grid": grid,
            "8-connected grid": fg.PairwiseMRF.grid(side, side, scores.node, eight, connectivity=8),
            "edge list": fg.PairwiseMRF(scores.node, grid_tables, grid.graph.edges),
        }
        nodes, edges = rng.permutation(side * side), rng.permutation(len(grid.graph.edges))
        graphs["shuffled edge list"] = fg.PairwiseMRF(
            scores.node, grid_tables if shared else grid_tables[edges],
            nodes[grid.graph.edges[edges]],
        )  # fmt: skip
        ends = np.sort(rng.integers(side * side, size=(len(edges) * 11 // 10, 2)), axis=1)
        ends = np.unique(ends[ends[:, 0] < ends[:, 1]], axis=0)
        ends = rng.permutation(ends)[: len(edges)]
        graphs["random graph"] = fg.PairwiseMRF(
            scores.node, grid_tables if shared else grid_tables[: len(ends)], ends
        )
        runs = {name: (g, 0.0) for name, g in graphs.items()}
        runs["4-connected grid, damping 0.5"] = grid, 0.5
        calls = {
            name: lambda g=g, d=d: g.infer("bp", max_iter=ITERATIONS, tol=0.0, damping=d)
            for name, (g, d) in runs.items()
        }
        edge_list = graphs["edge list"]
        runs["edge list, trw, damping 0.5"] = edge_list, 0.5
        messages = tree_messages(edge_list, 1, tree_cover(edge_list.graph).rho)
        calls["edge list, trw, damping 0.5"] = lambda m=messages: [
            m.sweep(0.5) for _ in range(ITERATIONS)
        ]
        times = interleaved_medians(calls)
        each = {n: times[n] / (ITERATIONS * 2 * g.graph.num_edges) for n, (g, _) in runs.items()}
        for name in runs:
            yield {
                "case": f"BP on a {name}, {side} x {side}, {labels} labels, "
                f"{'shared' if shared else 'own'} tables, one thread",
                "seconds a message": each[name],
                "ratio 4-connected": each[name] / each["4-connected grid"],
            }


def cuts(quick):
    """Time minimum cuts against PyMaxflow: one coupling, a table per edge, an edge list."""
    try:
        import maxflow
    except ImportError:
        return
    side = 64 if quick else 256
    rng = np.random.default_rng(0)
    node = rng.normal(size=(side, side))
    scores = np.stack((-node, node), axis=-1)
    for coupling, own in ((0.5, False), (1.0, False), (2.0, False), (0.5, True), (2.0, True)):
        tables = coupling * np.eye(2)
        if own:
            tables = rng.exponential(size=2 * side * (side - 1))[:, None, None] * tables
        grid = fg.PairwiseMRF.grid(side, side, scores, tables)
        edges = grid.graph.edges
        graphs = {"grid": grid, "edge list": fg.PairwiseMRF(scores.reshape(-1, 2), tables, edges)}
        weights = np.broadcast_to(tables, (len(edges), 2, 2))[:, 0, 0]
        for name, graph in graphs.items():
            in_rows = name == "grid" and not own

            def peer(weights=weights, edges=edges, in_rows=in_rows):
                graph = maxflow.GraphFloat(side * side, len(edges))
                ids = graph.add_grid_nodes((side, side))
                if in_rows:
                    graph.add_grid_edges(ids, weights[0])
                else:
                    graph.add_edges(edges[:, 0], edges[:, 1], weights, weights)
                graph.add_grid_tedges(ids, node, -node)
                graph.maxflow()
                return graph.get_grid_segments(ids)

            mine = graph.decode("graph-cut").labels.reshape(side, side)
            assert np.array_equal(mine == 0, peer())
            times = interleaved_medians(
                {"mine": lambda g=graph: g.decode("graph-cut"), "peer": peer}
            )
            yield {
                "case": f"minimum cut of a {name} {side} x {side}, coupling {coupling}"
                f"{' times a weight of each edge' if own else ''}",
                "seconds": times["mine"],
                "seconds PyMaxflow": times["peer"],
                "ratio PyMaxflow": times["peer"] / times["mine"],
            }


def scaling(quick):
    for side in (64, 128, 256) if quick else (64, 128, 256, 512, 1024):
        grid = model(side, 4)
        seconds = median_seconds(lambda g=grid: fstgrad_bp(g, 10))
        yield {
            "case": f"BP {side} x {side}, 4 labels, 10 iterations",
            "seconds": seconds,
            "seconds a message": seconds / (10 * 2 * grid.graph.num_edges),
        }


def numpy_pseudolikelihood(grid, side, gold):
    """Return the value and the gradients in node scores and shared edge scores."""
    node, table = grid.scores.node.reshape(side, side, -1), grid.scores.edge
    y = gold.reshape(side, side)
    scores = node.copy()
    scores[:, 1:] += table[y[:, :-1]]
    scores[:, :-1] += table.T[y[:, 1:]]
    scores[1:] += table[y[:-1]]
    scores[:-1] += table.T[y[1:]]
    top = scores.max(axis=-1, keepdims=True)
    log_norm = top + np.log(np.exp(scores - top).sum(axis=-1, keepdims=True))
    p = np.exp(scores - log_norm)
    value = (log_norm[..., 0] - np.take_along_axis(scores, y[..., None], -1)[..., 0]).sum()
    p -= np.eye(node.shape[2])[y]
    edge = np.zeros_like(table)
    np.add.at(edge, y[:, :-1].ravel(), p[:, 1:].reshape(-1, len(table)))
    np.add.at(edge, y[:-1].ravel(), p[1:].reshape(-1, len(table)))
    np.add.at(edge.T, y[:, 1:].ravel(), p[:, :-1].reshape(-1, len(table)))
    np.add.at(edge.T, y[1:].ravel(), p[:-1].reshape(-1, len(table)))
    return value, p.reshape(gold.size, -1), edge


def pseudolikelihood(quick):
    side = 64 if quick else 256
    gold = np.random.default_rng(0).integers(10, size=side * side)
    for shared in (True, False):
        grid = model(side, 10, shared=shared)
        calls = {"fstgrad": lambda g=grid: g.nll(gold, "pseudolikelihood")}
        if shared:
            calls["numpy"] = lambda g=grid: numpy_pseudolikelihood(g, side, gold)
            mine, other = calls["fstgrad"](), calls["numpy"]()
            np.testing.assert_allclose(mine[0], other[0], rtol=1e-12)
            np.testing.assert_allclose(mine[1].edge, other[2], atol=1e-8)
        times = interleaved_medians(calls)
        yield {
            "case": f"pseudolikelihood {side} x {side}, 10 labels, "
            f"{'shared' if shared else 'own'} edge scores",
            "seconds": times["fstgrad"],
            "seconds numpy": times.get("numpy"),
            "ratio numpy": times["numpy"] / times["fstgrad"] if shared else None,
        }


def rows(quick):
    yield from belief_propagation(quick)
    yield from other_graphs(quick)
    yield from scaling(quick)
    yield from cuts(quick)
    yield from pseudolikelihood(quick)


if __name__ == "__main__":
    run("grid: Markov random fields on pixel grids, two threads", rows)
