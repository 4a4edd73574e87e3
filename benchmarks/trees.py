"""Spanning trees against LAPACK, torch-struct and ufal.chu_liu_edmonds.

The floor of an item is LAPACK's getrf and getri on its Laplacian, called in a loop.  Our times are
from the table of scores to the results, with the construction of the object.  The algorithms of
2007 and 2009 that the paper on expectations compares are in `_papers_zmigrod.py`.
"""

import pathlib
import sys

from _harness import interleaved_medians, one_thread, run, seconds_of

one_thread()
ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import warnings  # noqa: E402

import numpy as np  # noqa: E402
from scipy.linalg import lapack  # noqa: E402

from fstgrad import SpanningTrees, SparseUndirectedTrees, best_tree  # noqa: E402
from tests.oracles import trees as oracle  # noqa: E402

try:
    import torch
    import torch_struct
except ImportError:
    torch = None
else:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*arg_constraints.*")


def floor(scores):
    """Return a call that factors and inverts the Laplacian of every item."""
    weights = np.exp(scores)
    matrices = []
    for item in weights:
        np.fill_diagonal(item, 0.0)
        inner = item[1:, 1:]
        matrix = np.diag(inner.sum(axis=0)) - inner
        matrix[0] = item[0, 1:]
        matrices.append(np.asfortranarray(matrix))
    size = 64 * len(inner)

    def call():
        for matrix in matrices:
            factors, pivots, _ = lapack.dgetrf(matrix)
            lapack.dgetri(factors, pivots, lwork=size, overwrite_lu=True)

    return call


def to_torch(scores):
    """Return the tables for torch-struct, with the root scores on the diagonal."""
    table = torch.tensor(scores[:, 1:, 1:].copy())
    diagonal = torch.arange(table.shape[-1])
    table[:, diagonal, diagonal] = torch.tensor(scores[:, 0, 1:].copy())
    return table


def torch_first_order(table):
    distribution = torch_struct.NonProjectiveDependencyCRF(table, multiroot=False)
    return distribution.partition, distribution.marginals


def torch_entropy_gradient(table):
    scores = table.clone().requires_grad_()
    log_z = torch_struct.NonProjectiveDependencyCRF(scores, multiroot=False).partition
    (marginals,) = torch.autograd.grad(log_z.sum(), scores, create_graph=True)
    entropy = log_z - (marginals * scores).sum(dim=(-1, -2))
    return entropy, torch.autograd.grad(entropy.sum(), scores)[0]


def first_and_second_order(quick):
    rng = np.random.default_rng(0)
    for n in (10, 20, 40) if quick else (10, 20, 40, 80, 160):
        for batch in (1, 64):
            scores = rng.normal(size=(batch, n + 1, n + 1))

            def first(scores=scores):
                trees = SpanningTrees(scores, single_root=True)
                return trees.log_partition(), trees.marginals()

            def second(scores=scores):
                return SpanningTrees(scores, single_root=True).entropy_and_gradient()

            calls = {"floor": floor(scores), "first": first, "second": second}
            if torch is not None:
                table = to_torch(scores)
                calls["torch first"] = lambda table=table: torch_first_order(table)
                calls["torch second"] = lambda table=table: torch_entropy_gradient(table)
            seconds = interleaved_medians(calls)
            yield {
                "n": n,
                "batch": batch,
                "seconds floor": seconds["floor"],
                "seconds log Z + marginals": seconds["first"],
                "ratio to floor": seconds["first"] / seconds["floor"],
                "times torch-struct": ratio(seconds, "torch first", "first"),
                "seconds entropy + gradient": seconds["second"],
                "ratio to the floor": seconds["second"] / seconds["floor"],
                "times torch autograd": ratio(seconds, "torch second", "second"),
            }


def ratio(seconds, slow, fast):
    return seconds[slow] / seconds[fast] if slow in seconds else None


def pruned(rng, n, heads, peak):
    """Return scores: the best tree gets `peak` more; all but the best heads are forbidden."""
    scores = rng.normal(size=(n + 1, n + 1)) * 2
    tree = SpanningTrees(scores, single_root=True).mode()
    scores[tree, np.arange(1, n + 1)] += peak
    np.fill_diagonal(scores, -np.inf)
    worst = np.argsort(scores[:, 1:], axis=0)[:-heads]
    for d in range(1, n + 1):
        scores[np.setdiff1d(worst[:, d - 1], tree[d - 1]), d] = -np.inf
    return scores


def cliff(quick):
    """Time log Z and marginals of tables for which a plain inverse fails, against a dense table.

    The ratios are the largest of `count` tables of each kind, with a single root.
    """
    rng, count = np.random.default_rng(7), 4 if quick else 12
    for n in (10, 20, 40, 80):
        dense = rng.normal(size=(n + 1, n + 1))
        required = SpanningTrees(dense, single_root=True).with_arcs(required=[(0, n // 2)]).scores
        kinds = {"four heads": [pruned(rng, n, 4, 0) for _ in range(count)]}
        kinds["four heads, peaked"] = [pruned(rng, n, 4, 8) for _ in range(count)]
        kinds["two heads"] = [pruned(rng, n, 2, 4) for _ in range(count)]
        for name, mask in (("-1e4", -1e4), ("-1e30", -1e30)):
            kinds[f"masks {name}"] = [
                np.where(t == -np.inf, mask, t) for t in kinds["four heads, peaked"]
            ]
        kinds["required root arc"] = [required]
        calls = {"dense": lambda dense=dense: solved(dense)}
        for kind, tables in kinds.items():
            for i, table in enumerate(tables):
                calls[kind, i] = lambda table=table: solved(table)
        seconds = interleaved_medians(calls)
        row = {"n": n, "seconds dense": seconds["dense"]}
        for kind, tables in kinds.items():
            worst = max(seconds[kind, i] for i in range(len(tables)))
            row[f"ratio {kind}"] = worst / seconds["dense"]
        yield row


def solved(scores):
    trees = SpanningTrees(scores, single_root=True)
    return trees.log_partition(), trees.marginals()


def covariances(quick):
    """Time covariances of all pairs of arcs against Hessian-vector products."""
    rng = np.random.default_rng(8)
    for n in (5, 10, 20) if quick else (5, 10, 20, 30):
        scores = rng.normal(size=(n + 1, n + 1))
        trees = SpanningTrees(scores, single_root=True)
        units = np.eye(scores.size).reshape(-1, *scores.shape)
        seconds = interleaved_medians(
            {
                "matrix": trees.covariance_matrix,
                "columns": lambda t=trees, u=units: [t.covariance_product(v) for v in u],
            }
        )
        yield {
            "n": n,
            "seconds covariances": seconds["matrix"],
            "times a product each": seconds["columns"] / seconds["matrix"],
        }


def discrete(quick):
    """Time best trees and samples, and ufal.chu_liu_edmonds if it is installed.

    ufal reads scores[dependent, head] and returns a list.  "times ufal, converted" includes the
    transposition of the table and the array of heads; "times ufal" is its call alone.
    """
    rng = np.random.default_rng(4)
    try:
        from ufal.chu_liu_edmonds import chu_liu_edmonds
    except ImportError:
        chu_liu_edmonds = None
    for n in (5, 10, 20, 40, 80):
        scores = rng.normal(size=(64, n + 1, n + 1))
        one = SpanningTrees(scores[0], single_root=True)
        one.log_partition()
        calls = {
            "alone": lambda s=scores[0]: best_tree(s, single_root=False),
            "mode": lambda s=scores: SpanningTrees(s[0], single_root=False, labeled=False).mode(),
            "modes": lambda s=scores: SpanningTrees(s, single_root=False, labeled=False).mode(),
            "best": lambda one=one: one.kbest(64),
            "wilson": lambda one=one: one.sample(1000, 0, method="wilson"),
            "distinct": lambda one=one: one.sample_without_replacement(64, 0),
            "column": lambda one=one, s=scores: one.with_column(1, s[1, :, 1]).log_partition(),
        }
        if chu_liu_edmonds is not None:
            table = np.ascontiguousarray(scores[0].T)
            calls["ufal"] = lambda table=table: chu_liu_edmonds(table)
            calls["converted"] = lambda s=scores[0]: np.array(
                chu_liu_edmonds(np.ascontiguousarray(s.T))[0][1:]
            )
            assert (calls["alone"]() == calls["converted"]()).all()
        seconds = interleaved_medians(calls)
        yield {
            "n": n,
            "seconds best_tree": seconds["alone"],
            "seconds mode": seconds["mode"],
            "seconds each of 64": seconds["modes"] / 64,
            "times ufal": ratio(seconds, "ufal", "alone"),
            "times ufal, converted": ratio(seconds, "converted", "alone"),
            "times ufal, batch": 64 * seconds["ufal"] / seconds["modes"]
            if chu_liu_edmonds
            else None,
            "seconds 64 best": seconds["best"],
            "seconds 1,000 Wilson": seconds["wilson"],
            "seconds 64 distinct": seconds["distinct"],
            "seconds new column": seconds["column"],
        }


def sparse(quick):
    """Time a grid of 10^5 nodes and 4 * 10^5 arcs (a dense table would need 80 GB)."""
    rng = np.random.default_rng(9)
    side = 60 if quick else 316
    index = np.arange(side * side).reshape(side, side)
    pairs = ((index[:, :-1], index[:, 1:]), (index[:-1], index[1:]))
    edges = np.concatenate([np.stack([a.ravel(), b.ravel()], axis=1) for a, b in pairs])
    for name in ("warm-up", "grid"):
        trees = SparseUndirectedTrees(edges, rng.normal(size=len(edges)), n=side * side)
        row = {"sparse": f"{side * side} nodes", "arcs": len(trees.arborescences.arcs)}
        row["seconds log Z"] = seconds_of(trees.log_partition)
        row["seconds marginals"] = seconds_of(trees.marginals)
        row["seconds a sample"] = seconds_of(lambda t=trees: t.sample(1, 0))
        if name == "grid":
            yield row


def stability(quick):
    """Compare errors of log Z and marginals with those of plain float64 determinants."""
    rng = np.random.default_rng(5)
    for sd in (1.0, 5.0, 20.0, 50.0):
        scores = rng.normal(size=(1, 13, 13)) * sd
        digits = 60 + int(1.5 * np.ptp(scores))
        log_z, marginals = oracle.long_solution(scores[0], single_root=True, digits=digits)
        trees = SpanningTrees(scores[0], single_root=True)
        row = {
            "sd of scores": sd,
            "error log Z": abs(trees.log_partition() - log_z),
            "error marginals": float(np.abs(trees.marginals() - marginals).max()),
        }
        if torch is not None:
            value, table = torch_first_order(to_torch(scores))
            theirs = np.zeros_like(marginals)
            theirs[1:, 1:] = table[0].numpy()
            theirs[0, 1:] = np.diagonal(table[0].numpy())
            np.fill_diagonal(theirs, 0.0)
            row["torch-struct log Z"] = abs(float(value[0]) - log_z)
            row["torch-struct marginals"] = float(np.abs(theirs - marginals).max())
        yield row


def rows(quick):
    for section in (
        first_and_second_order, cliff, covariances, discrete, sparse, stability,
    ):  # fmt: skip
        yield from section(quick)


if __name__ == "__main__":
    run("Spanning trees", rows)
