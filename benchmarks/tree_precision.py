"""Spanning trees of hard tables: which libraries compute correct log Z and marginals, how fast?

Every case is a table of 12 words with a single root arc, whose answer is known from arithmetic with
hundreds of digits.  "right" means an error of at most 1e-6 in log Z and all marginals; otherwise
the cell shows the error of the marginals.  The libraries, if installed, are torch-struct, SuPar
(only its structures, without its parsers), and JAX with our implementation of SynJax's method
(`_jax_trees`).
"""

import importlib.util
import pathlib
import sys
import types

from _harness import interleaved_medians, one_thread, run

one_thread()
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

import warnings  # noqa: E402

import numpy as np  # noqa: E402

from fstgrad import SpanningTrees  # noqa: E402
from tests.oracles import trees as oracle  # noqa: E402

warnings.filterwarnings("ignore")
N = 12
FLOAT32_MIN = float(np.finfo(np.float32).min)


def cases():
    """Yield (name, scores, scores for the oracle)."""
    rng = np.random.default_rng(5)
    plain = rng.normal(size=(N + 1, N + 1))
    yield "sd 1", plain
    yield "sd 50", 50 * plain
    for height in (20, 40):
        mutual = plain.copy()
        mutual[2, 5] += height
        mutual[5, 2] += height
        yield f"mutual heads {height}", mutual
    far = plain.copy()
    far[0] += 800
    yield "root arcs +800", far
    far = plain.copy()
    far[0] -= 800
    yield "root arcs -800", far
    pruned = plain.copy()
    best = SpanningTrees(plain, single_root=True).mode()
    worst = np.argsort(pruned[:, 1:], axis=0)[:-4]
    for d in range(1, N + 1):
        pruned[np.setdiff1d(worst[:, d - 1], best[d - 1]), d] = -np.inf
    yield "four heads per word, -inf", pruned
    yield "four heads, -1e9", np.where(pruned == -np.inf, -1e9, pruned)
    yield "four heads, float32 min", np.where(pruned == -np.inf, FLOAT32_MIN, pruned)


def ours(batch):
    trees = SpanningTrees(batch, single_root=True, labeled=False)
    return trees.log_partition(), trees.marginals()


def engines():
    """Return {name: (call on a prepared batch, preparation, table of an item's marginals)}."""
    found = {"fstgrad": (ours, lambda batch: batch, lambda mu: mu)}
    if importlib.util.find_spec("torch_struct"):
        found["torch-struct"] = torch_struct_engine()
    spec = importlib.util.find_spec("supar")
    if spec is not None:
        found["SuPar"] = supar_engine(spec)
    if importlib.util.find_spec("jax"):
        found["JAX, LU"] = jax_engine()
    return found


def torch_struct_engine():
    import torch
    import torch_struct

    torch.set_num_threads(1)

    def prepare(batch):
        table = torch.tensor(batch[:, 1:, 1:].copy())
        diagonal = torch.arange(table.shape[-1])
        table[:, diagonal, diagonal] = torch.tensor(batch[:, 0, 1:].copy())
        return table

    def call(table):
        crf = torch_struct.NonProjectiveDependencyCRF(table, multiroot=False)
        return crf.partition.numpy(), crf.marginals.numpy()

    def unpack(mu):
        table = np.zeros((len(mu) + 1,) * 2)
        table[1:, 1:], table[0, 1:] = mu, np.diagonal(mu)
        np.fill_diagonal(table, 0.0)
        return table

    return call, prepare, unpack


def supar_engine(spec):
    package = types.ModuleType("supar")
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules["supar"] = package
    import torch
    from supar.structs import MatrixTree

    def prepare(batch):  # SuPar indexes [dependent, head]
        return torch.tensor(np.where(np.isneginf(batch), -np.inf, batch)).mT.contiguous()

    def call(table):
        lengths = torch.full((len(table),), table.shape[-1] - 1)
        crf = MatrixTree(table, lens=lengths, multiroot=False)
        return crf.log_partition.detach().numpy(), crf.marginals.detach().numpy()

    return call, prepare, lambda mu: mu.T


def jax_engine():
    import _jax_trees
    import jax

    def call(table):
        return tuple(map(np.asarray, _jax_trees.first_order(table)))

    return call, jax.numpy.asarray, lambda mu: mu


def verdict(engine, scores, log_z, marginals):
    call, prepare, unpack = engine
    try:
        value, mu = call(prepare(scores[None]))
        table = np.asarray(unpack(np.asarray(mu)[0]), dtype=float)
    except Exception as error:
        return type(error).__name__
    inner = ~np.eye(len(scores), dtype=bool)
    inner[:, 0] = False
    gap = np.abs(table - marginals)[inner].max()
    off = abs(float(np.asarray(value).reshape(-1)[0]) - log_z) / (1 + abs(log_z))
    if np.isnan(gap) or np.isnan(off):
        return "NaN"
    if gap <= 1e-6 and off <= 1e-6:
        return "right"
    return f"wrong, {gap:.0e}" if gap > 1e-6 else f"log Z wrong, {off:.0e}"


def precision(found):
    for name, scores in cases():
        known = np.where(scores < -1e8, -np.inf, scores)
        finite = known[np.isfinite(known)]
        digits = 60 + int(1.5 * np.ptp(finite))
        log_z, marginals = oracle.long_solution(known, single_root=True, digits=digits)
        yield {"n = 12": name} | {
            engine: verdict(parts, scores, log_z, marginals) for engine, parts in found.items()
        }


def speed(found, quick):
    rng = np.random.default_rng(1)
    for n, batch in ((20, 1), (20, 64), (40, 64)):
        scores = rng.normal(size=(batch, n + 1, n + 1))
        calls = {}
        for name, (call, prepare, _) in found.items():
            ready = prepare(scores)
            calls[name] = lambda call=call, ready=ready: call(ready)
        seconds = interleaved_medians(calls)
        row = {"log Z + marginals": f"{batch} x {n}", "seconds fstgrad": seconds["fstgrad"]}
        for name in found:
            if name != "fstgrad":
                row[f"times {name}"] = seconds[name] / seconds["fstgrad"]
        yield row


def rows(quick):
    found = engines()
    yield from precision(found)
    yield from speed(found, quick)


if __name__ == "__main__":
    run("Spanning trees of hard tables", rows)
