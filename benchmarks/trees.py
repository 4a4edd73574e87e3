"""Spanning trees against LAPACK, torch-struct and the algorithms of 2007 and 2009.

The floor of an item is LAPACK's getrf and getri on its Laplacian, called in a loop; our times are
from the table of scores to the results, the object included.  Sentence lengths are those of the
English and German PUD treebanks where they are at hand (FSTGRAD_DATA), or drawn like them.
"""

import os
import pathlib
import sys

from _harness import interleaved_medians, one_thread, run

one_thread()
ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import warnings  # noqa: E402

import numpy as np  # noqa: E402
from scipy.linalg import lapack  # noqa: E402

from fstgrad import SpanningTrees  # noqa: E402
from tests.oracles import trees as oracle  # noqa: E402

try:
    import torch
    import torch_struct
except ImportError:
    torch = None
else:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message=".*arg_constraints.*")

DATA = pathlib.Path(os.environ.get("FSTGRAD_DATA", ROOT.parent / "shared" / "data")) / "ud"


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
    """Return the tables of torch-struct: root scores on the diagonal."""
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


def sentence_lengths(language, folder):
    """Return the lengths of a treebank's sentences and where they are from."""
    files = sorted((DATA / folder).glob("*.conllu"))
    if not files:
        rng = np.random.default_rng(1)
        return np.clip(rng.gamma(4, 5, size=1000).astype(int), 2, 60), f"like {language}"
    lengths, count = [], 0
    for line in files[0].read_text(encoding="utf-8").splitlines():
        if line[:1].isdigit():
            count += line.split("\t")[0].isdigit()
        elif not line and count:
            lengths.append(count)
            count = 0
    return np.array(lengths), language


def entropies(quick):
    rng = np.random.default_rng(2)
    for language, folder in (("English", "UD_English-PUD"), ("German", "UD_German-PUD")):
        lengths, name = sentence_lengths(language, folder)
        lengths = lengths[:50] if quick else lengths
        tables = [rng.normal(size=(n + 1, n + 1)) for n in lengths]
        padded = np.zeros((len(lengths), max(lengths) + 1, max(lengths) + 1))
        for item, table in zip(padded, tables, strict=True):
            item[: len(table), : len(table)] = table

        def one_by_one(tables=tables):
            return [SpanningTrees(t, single_root=True).entropy() for t in tables]

        def batched(padded=padded, lengths=lengths):
            return SpanningTrees(padded, single_root=True, lengths=lengths).entropy()

        def looped(tables=tables):
            return [oracle.smith_eisner_entropy(t) for t in tables]

        np.testing.assert_allclose(one_by_one(), looped(), atol=1e-8)
        seconds = interleaved_medians(
            {"looped": looped, "one by one": one_by_one, "batched": batched}
        )
        yield {
            "sentences": f"{len(lengths)} {name}",
            "mean length": float(np.mean(lengths)),
            "seconds Smith-Eisner": seconds["looped"],
            "seconds one by one": seconds["one by one"],
            "times one by one": seconds["looped"] / seconds["one by one"],
            "seconds batched": seconds["batched"],
            "times batched": seconds["looped"] / seconds["batched"],
        }


def generalized_expectation(quick):
    rng = np.random.default_rng(3)
    for n in (10, 20, 40) if quick else (10, 20, 40, 80):
        scores = rng.normal(size=(n + 1, n + 1))
        features, target = rng.normal(size=(n + 1, n + 1, 20)), rng.normal(size=20)

        def ours(scores=scores, features=features, target=target):
            return SpanningTrees(scores, single_root=True).generalized_expectation(
                features, target
            )[1]

        def theirs(scores=scores, features=features, target=target):
            return oracle.druck_smith_gradient(scores, features, target)

        np.testing.assert_allclose(ours(), theirs(), atol=1e-9)
        seconds = interleaved_medians({"ours": ours, "theirs": theirs})
        yield {
            "n": n,
            "features": 20,
            "seconds Druck-Smith": seconds["theirs"],
            "seconds gradient": seconds["ours"],
            "times Druck-Smith": seconds["theirs"] / seconds["ours"],
        }


def discrete(quick):
    """Best trees and samples; the reference is what LAPACK's floor takes for the same batch."""
    n, rng = 40, np.random.default_rng(4)
    scores = rng.normal(size=(64, n + 1, n + 1))
    one = SpanningTrees(scores[0], single_root=True)
    one.log_partition()
    seconds = interleaved_medians(
        {
            "floor, 64 inverses": floor(scores),
            "best tree of 64 sentences": lambda: SpanningTrees(scores, single_root=True).mode(),
            "1,000 Wilson samples": lambda: one.sample(1000, 0, method="wilson"),
            "100 Colbourn samples": lambda: one.sample(100, 0, method="colbourn"),
            "10 best trees": lambda: one.kbest(10),
        }
    )
    for name, value in seconds.items():
        yield {
            "n = 40": name,
            "seconds": value,
            "ratio to floor": value / seconds["floor, 64 inverses"],
        }


def stability(quick):
    """What plain float64 determinants give where ours are right: errors in log Z and marginals."""
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
    for section in (first_and_second_order, entropies, generalized_expectation, discrete):
        yield from section(quick)
    yield from stability(quick)


if __name__ == "__main__":
    run("Spanning trees", rows)
