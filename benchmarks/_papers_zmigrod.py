"""Zmigrod, Vieira and Cotterell (2021), for `papers.py`: expectations, their costs and speed-ups.

The paper's baselines are Smith and Eisner (2007) and Druck and Smith (2009); ours are our own
implementations of their algorithms in NumPy (`tests/oracles/trees.py`).
"""

import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from _harness import Row, interleaved_medians, median_seconds, seconds_of
from _papers import Section
from scipy.sparse import csr_array

from fstgrad import SpanningTrees, plot
from fstgrad.trees.treebank import Sentence, read_conllu

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.oracles import trees as oracle  # noqa: E402

TREEBANKS = ("English", "German", "Hindi", "Spanish", "Turkish")
DATA = pathlib.Path(os.environ.get("FSTGRAD_DATA", ROOT.parent / "shared" / "data")) / "ud"


def sections(quick: bool) -> Iterator[Section]:
    """Yield the expectations, their applications, the costs of T1 and T2, and the experiments."""
    yield expectations()
    yield applications()
    yield doubling(quick)
    yield wide_and_sparse(quick)
    yield speedups(quick)


class Enumerated(NamedTuple):
    """All trees of a table of scores: tables of arcs (t, n+1, n+1), weights and probabilities."""

    tables: np.ndarray
    weights: np.ndarray
    p: np.ndarray

    @classmethod
    def of(cls, scores: np.ndarray, *, single_root: bool = True) -> "Enumerated":
        tables = np.array(oracle.tables(scores.shape, single_root=single_root)[1])
        weights = np.exp((tables * scores).sum(axis=(1, 2)))
        return cls(tables, weights, weights / weights.sum())

    def totals(self, r: np.ndarray) -> np.ndarray:
        """Return r(d) (t, R) of r (n+1, n+1, R)."""
        return np.einsum("tij,ijr->tr", self.tables, r)

    def covariance(self, of: np.ndarray) -> np.ndarray:
        """Return Cov[f(d), arcs], the gradient of E[f] in the scores, for values f (t,)."""
        centered = self.p * (of - self.p @ of)
        return np.einsum("t,tij->ij", centered, self.tables)


def compared(quantity: str, formula: str, ours: object, enumerated: object) -> Row:
    """Return a row: the entry that is largest in absolute value, and the largest difference."""
    a, b = np.asarray(ours, dtype=float), np.asarray(enumerated, dtype=float)
    place = np.unravel_index(np.abs(b).argmax(), b.shape)
    return {
        "quantity": quantity, "formula": formula, "shape": str(a.shape), "ours": float(a[place]),
        "enumerated": float(b[place]), "difference": float(np.abs(a - b).max()),
    }  # fmt: skip


def agreement(rows: list[Row]) -> str:
    """Return the largest difference of the rows, in words."""
    return f"the largest difference is {max(row['difference'] for row in rows):.0e}"


def expectations() -> Section:
    """Return Z and the expectations of order 0, 1 and 2 of a random table, and their totals."""
    rng = np.random.default_rng(0)
    n = 5
    scores, q = rng.normal(size=(2, n + 1, n + 1))
    r, s = rng.normal(size=(n + 1, n + 1, 3)), rng.normal(size=(n + 1, n + 1, 2))
    trees, all_trees = SpanningTrees(scores, single_root=True), Enumerated.of(scores)
    many = Enumerated.of(scores, single_root=False)
    p, first, second = all_trees.p, all_trees.totals(r), all_trees.totals(s)
    products = (all_trees.tables * np.log(np.abs(q))).sum(axis=(1, 2))
    signs = np.where(all_trees.tables > 0, np.sign(q), 1.0).prod(axis=(1, 2))
    moment = (p[:, None] * first).T @ second
    rows = [
        compared("trees, one root arc", "n^(n-1)", np.exp(trees.renyi(0)), len(p)),
        compared("Z, one root arc", "|L|", np.exp(trees.log_partition()), all_trees.weights.sum()),
        compared(
            "Z, any root arcs", "|L|",
            np.exp(SpanningTrees(scores, single_root=False).log_partition()), many.weights.sum(),
        ),
        compared(
            "marginals", "p(arc in d)", trees.marginals(),
            np.einsum("t,tij->ij", p, all_trees.tables),
        ),
        compared(
            "zeroth order", "E[product of q]", trees.expected_product(q),
            p @ (signs * np.exp(products)),
        ),
        compared("T1", "E[r(d)]", trees.expectations(r), p @ first),
        compared("T1, total", "sum of w(d) r(d)", trees.totals(r), all_trees.weights @ first),
        compared("T2v", "E[r(d) s(d)']", trees.second_moments(r, s, method="vector"), moment),
        compared("T2h", "E[r(d) s(d)']", trees.second_moments(r, s, method="hessian"), moment),
        compared(
            "T2, total", "sum of w(d) r(d) s(d)'", trees.totals(r, s),
            all_trees.weights.sum() * moment,
        ),
        compared(
            "gradient of T1", "d E[r_1] / d scores", trees.risk(r[..., 0])[1],
            all_trees.covariance(first[:, 0]),
        ),
    ]  # fmt: skip
    return Section(
        "T1, Figure 2, and T2, Figure 3",
        "expectations under a random table of 5 words, against sums over all trees",
        rows,
        f"all agree; {agreement(rows)}",
        "`log_partition`, `marginals`, `expected_product`, `expectations`, `second_moments` and "
        "`totals` of `fg.SpanningTrees`. The scores, q, r and s are normal (q of both signs); r "
        "has 3 entries for each arc and s has 2. An expectation is the paper's total divided by Z; "
        "`totals` does not divide. For a table, the row shows its largest entry, and the largest "
        "difference of all entries. Gradients are in the scores, which are log-weights: the "
        "paper's gradients in the weights, times the weights.",
        {"arc-probabilities": plot.trees(trees.marginals())},
    )


def applications() -> Section:
    """Return the applications of the paper with their gradients, against sums over trees."""
    rng = np.random.default_rng(1)
    n = 5
    scores, other = rng.normal(size=(2, n + 1, n + 1))
    features, target = rng.normal(size=(n + 1, n + 1, 3)), rng.normal(size=3)
    p, q = (SpanningTrees(x, single_root=True) for x in (scores, other))
    mine, theirs = Enumerated.of(scores), Enumerated.of(other)
    logs, other_logs = np.log(mine.p), np.log(theirs.p)
    gold = p.mode()
    risk = p.risk(p.hamming_costs(gold))
    wrong = n - (mine.tables * p.parts(gold)).sum(axis=(1, 2))
    gap = mine.p @ mine.totals(features) - target
    entropy, kl = -mine.p @ logs, mine.p @ (logs - other_logs)
    entropy_gradient, kl_gradient = p.entropy_and_gradient()[1], p.kl_and_gradients(q)[1]
    value, gradient = p.generalized_expectation(features, target)
    rows = [
        compared("risk, wrong heads", "E[cost(d)]", risk[0], mine.p @ wrong),
        compared("its gradient", "Cov", risk[1], mine.covariance(wrong)),
        compared("Shannon entropy", "-E[log p(d)]", p.entropy(), entropy),
        compared("its gradient", "-Cov", entropy_gradient, -mine.covariance(logs)),
        compared("KL divergence", "E[log p(d) / q(d)]", p.kl(q), kl),
        compared("its gradient", "Cov", kl_gradient, mine.covariance(logs - other_logs)),
        compared("cross-entropy", "-E[log q(d)]", p.cross_entropy(q), entropy + kl),
        compared("generalized expectation", "1/2 |E f - f*|^2", value, gap @ gap / 2),
        compared("its gradient", "Cov", gradient, mine.covariance(mine.totals(features) @ gap)),
    ]
    hartley, least = np.log(len(logs)), -logs.max()
    rows += [
        compared("Renyi entropy, order 0", "log of the number of trees", p.renyi(0), hartley),
        compared("Renyi entropy, order inf", "-log of the largest p(d)", p.renyi(np.inf), least),
    ]
    for order in (0.5, 2):
        exact = np.log(np.exp(order * logs).sum()) / (1 - order)
        rows.append(compared(f"Renyi entropy, order {order:g}", "H_a", p.renyi(order), exact))
    for k in (0.5, 2, 3):
        exact = np.exp(k * logs).sum() ** (1 / k)
        rows.append(compared(f"l_{k:g} norm", "(sum of p(d)^k)^(1/k)", p.norm(k), exact))
    orders = np.linspace(0, 4, 41).tolist()
    curve = {"a random table": (orders, [p.renyi(order) for order in orders])}
    curve["its limit"] = ([0, 4], [p.renyi(np.inf)] * 2)
    return Section(
        "Applications",
        "risk, entropies, divergences, generalized expectations and norms, against sums over trees",
        rows,
        f"all agree; {agreement(rows)}",
        "Each costs O(n^3), with its gradient. The paper names Renyi entropies and l_k norms as "
        "zeroth-order expectations: the weights to the power a are the scores times a. Order 0 is "
        "the log of the number of trees, and the limit +inf is -log p of the best tree.",
        {
            "renyi-entropy-by-order": plot.curves(
                {"5 words": curve}, xlabel="order", ylabel="Renyi entropy, nats", log=False
            )
        },
    )


def table_of(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=(n + 1, n + 1))


def doubling(quick: bool) -> Section:
    """Return the seconds of T1, T2v and T2h as n and R double."""
    rng = np.random.default_rng(2)
    fixed = solved(rng, 40)
    runs = [
        ("T1", "n", "n^3 (8)", [(n, first_order(rng, n)) for n in doubled(10, 5 if quick else 7)]),
        (
            "T2v, R = S = 8", "n", "n^3 (R + S) (8)",
            [(n, second_order(solved(rng, n), dense(rng, n, 8), "vector"))
             for n in doubled(10, 3 if quick else 5)],
        ),
        (
            "T2h, R = S = 64", "n", "n^4 (16)",
            [(n, second_order(solved(rng, n), one_of_each(rng, n, 64), "hessian"))
             for n in doubled(10, 2 if quick else 5)],
        ),
        (
            "T2v, n = 40", "R = S", "n^3 (R + S) + n^2 R S (2 to 4)",
            [(length, second_order(fixed, dense(rng, 40, length), "vector"))
             for length in doubled(16, 4 if quick else 6)],
        ),
    ]  # fmt: skip
    rows: list[Row] = []
    panels: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for name, grows, cost, calls in runs:
        seconds = [seconds_per_call(call) for _, call in calls]
        sizes = [size for size, _ in calls]
        panels.setdefault(grows, {})[name] = (np.log2(sizes).tolist(), seconds)
        for size, time, half in zip(sizes, seconds, [None, *seconds[:-1]], strict=True):
            ratio = time / half if half else None
            row = {"algorithm": name, "grows": grows, "size": size, "cost": cost}
            rows.append({**row, "seconds": time, "ratio to half the size": ratio})
    last = {row["algorithm"]: row["ratio to half the size"] for row in rows}
    return Section(
        "Costs",
        "seconds as n and R double",
        rows,
        "T1 is O(n^3), T2v is O(n^3 (R + S) + n^2 R S), and T2h is O(n^4) for vectors of few "
        "non-zeros: the last doubling multiplies the seconds by "
        + ", ".join(f"{ratio:.1f} ({name})" for name, ratio in last.items())
        + ". Small tables grow more slowly than that, because the overhead of calls outweighs "
        "the arithmetic, and some steps faster where tables leave a cache",
        "In brackets, the factor that the cost predicts for large sizes. T1 is the time from a "
        "table of scores to E[r], with R = 1: log Z, marginals and the sum. T2v and T2h are calls "
        "of `second_moments` after the marginals; the vectors of T2h have one non-zero for each "
        "arc. One thread.",
        {"seconds-by-size": plot.curves(panels, xlabel="log2 of the size", ylabel="seconds")},
    )


def seconds_per_call(call: Callable[[], object]) -> float:
    """Return the seconds of a call: the median of several if it is short."""
    once = seconds_of(call)
    return once if once > 0.5 else median_seconds(call)


def doubled(first: int, count: int) -> list[int]:
    return [first * 2**i for i in range(count)]


def solved(rng: np.random.Generator, n: int) -> SpanningTrees:
    """Return random trees whose marginals are known."""
    trees = SpanningTrees(table_of(rng, n), single_root=True)
    trees.marginals()
    return trees


def dense(rng: np.random.Generator, n: int, length: int) -> np.ndarray:
    return rng.normal(size=(n + 1, n + 1, length))


def one_of_each(rng: np.random.Generator, n: int, length: int) -> csr_array:
    """Return vectors of all arcs ((n+1)^2, length), with one non-zero each."""
    arcs = (n + 1) ** 2
    places = np.arange(arcs), rng.integers(length, size=arcs)
    return csr_array((rng.normal(size=arcs), places), shape=(arcs, length))


def first_order(rng: np.random.Generator, n: int) -> Callable[[], np.ndarray]:
    """Return a call of T1, from a table of scores to E[r]."""
    scores, r = table_of(rng, n), dense(rng, n, 1)
    return lambda: SpanningTrees(scores, single_root=True).expectations(r)


def second_order(
    trees: SpanningTrees, r: np.ndarray | csr_array, method: str
) -> Callable[[], np.ndarray]:
    """Return a call of T2 with s = r."""
    return lambda: trees.second_moments(r, r, method=method)


def wide_and_sparse(quick: bool) -> Section:
    """Return the seconds of T2v and T2h on vectors of one non-zero, and of the default."""
    rng = np.random.default_rng(3)
    rows = []
    sizes = [(20, 20), (20, 100), (20, 300), (20, 1000)]
    for n, length in sizes if quick else [*sizes, (40, 1681), (60, 3721)]:
        trees, r = solved(rng, n), one_of_each(rng, n, length)
        calls = [second_order(trees, r, method) for method in ("vector", "hessian", "auto")]
        first, second, third = (call() for call in calls)
        seconds = [seconds_per_call(call) for call in calls]
        gap = max(np.abs(first - second).max(), np.abs(first - third).max())
        rows.append(
            {
                "n": n, "R = S": length, "seconds T2v": seconds[0], "seconds T2h": seconds[1],
                "times T2h": seconds[0] / seconds[1], "seconds by default": seconds[2],
                "difference": float(gap),
            }
        )  # fmt: skip
    words = [
        f"{row['times T2h']:.2g} times at n = {row['n']} and R = {row['R = S']:,}" for row in rows
    ]
    return Section(
        "T2, Figure 3",
        "T2v and T2h on vectors with one non-zero for each arc",
        rows,
        f"T2h pays for wide vectors: it is {', '.join(words)} as fast as T2v",
        "T2h goes through the covariances of pairs of arcs and adds non-zeros only: "
        "O(n^4 (1 + S') + n^2 R' S), with R' and S' non-zeros for each arc. T2v multiplies "
        "matrices of n^2 by R and S numbers. By default, `second_moments` counts the operations of "
        "both and takes the cheaper one. One thread.",
    )


def speedups(quick: bool) -> Section:
    """Return the paper's speed-ups of the entropy and of generalized expectations beside ours."""
    files = [next((DATA / f"UD_{name}-PUD").glob("*.conllu"), None) for name in TREEBANKS]
    where, title = "Experiments", "speed-ups on treebanks of Universal Dependencies"
    if None in files:
        missing = f"the PUD treebanks of Universal Dependencies (no folder {DATA.name} of the data)"
        return Section(where, title, [], f"not run: {missing}", missing=missing)
    rng = np.random.default_rng(4)
    rows = []
    for name, file in zip(TREEBANKS, files, strict=True):
        sentences = list(read_conllu(file))[: 20 if quick else None]
        rows.append({"treebank": f"{name}-PUD", **entropies(sentences, rng)})
    rows += [
        {"treebank": f"{name}-PUD", **criteria(list(read_conllu(file)), rng, 8 if quick else 40)}
        for name, file in zip(TREEBANKS, files, strict=True)
    ]
    same, ours = "times, both in NumPy", "times, fstgrad"
    ranges = [
        f"{min(row[column] for row in half):.1f} to {max(row[column] for row in half):.1f}"
        for half in (rows[:5], rows[5:])
        for column in (same, ours)
    ]
    return Section(
        where,
        title,
        rows,
        f"entropy: the paper prints 4.1 to 15.1; the same comparison, both sides in NumPy, gives "
        f"{ranges[0]}, and fstgrad {ranges[1]}. Generalized expectations: the paper prints 9; both "
        f"sides in NumPy give {ranges[2]}, and fstgrad {ranges[3]}. The factors grow with the "
        "length of the sentences, and depend on machine and library; the paper's treebanks, "
        "parser and implementation are others",
        "The baselines are our own implementations: the entropy of Smith and Eisner (2007) with "
        "one determinant for each word, and the gradient of Druck and Smith (2009) from the "
        "covariances of all pairs of arcs. Both are vectorized in NumPy, and so is the paper's "
        "algorithm in the column of that name: one inverse, and for the gradient one "
        "Hessian-vector product. An earlier version of the paper (its abstract on arXiv) prints "
        "up to 12 and 26 times. The sentences are those of the PUD test sets; the paper's "
        "treebanks and the weights of its parser are not at hand, so the scores are normal. "
        "The features are pairs of tags of head and word (universal parts of speech), and their "
        "target is their counts in the gold tree. One thread, sentences one by one.",
        {
            "speed-ups": plot.bars(
                {
                    row["treebank"] + (", entropy" if i < 5 else ", criteria"): {
                        column.removeprefix("times, "): row[column] for column in (same, ours)
                    }
                    for i, row in enumerate(rows)
                },
                xlabel="times as fast as the baseline",
            )
        },
        tolerance=1e-8,
    )  # fmt: skip


def entropies(sentences: list[Sentence], rng: np.random.Generator) -> Row:
    """Return the mean entropy and the seconds of three ways to it."""
    tables = [table_of(rng, len(sentence.heads)) for sentence in sentences]
    ways = {
        "baseline": oracle.smith_eisner_entropy,
        "NumPy": entropy_in_numpy,
        "ours": lambda table: SpanningTrees(table, single_root=True).entropy(),
    }
    values = {name: [way(table) for table in tables] for name, way in ways.items()}
    seconds = interleaved_medians(
        {name: lambda way=way: [way(table) for table in tables] for name, way in ways.items()}
    )
    return {
        "sentences": len(tables),
        "mean words": float(np.mean([len(table) - 1 for table in tables])),
        "mean entropy": float(np.mean(values["ours"])),
        "difference": float(np.abs(np.subtract(values["ours"], values["baseline"])).max()),
        "paper": "4.1 to 15.1",
        **quotients(seconds),
        "seconds Smith-Eisner": seconds["baseline"],
        "seconds fstgrad": seconds["ours"],
    }


def criteria(sentences: list[Sentence], rng: np.random.Generator, count: int) -> Row:
    """Return the mean criterion and the seconds of three ways to its gradient."""
    tags = {tag: i for i, tag in enumerate(sorted({t for s in sentences for t in s.tags}), 1)}
    items = []
    for sentence in sentences[:count]:
        numbers = np.array([0, *(tags[tag] for tag in sentence.tags)])
        pairs = (numbers[:, None] * (len(tags) + 1) + numbers).ravel()
        ones, size = np.ones(len(pairs)), (len(tags) + 1) ** 2
        features = csr_array((ones, (np.arange(len(pairs)), pairs)), shape=(len(pairs), size))
        table = table_of(rng, len(sentence.heads))
        target = features.T @ SpanningTrees(table, single_root=True).parts(sentence.heads).ravel()
        items.append((table, features, features.toarray().reshape(*table.shape, size), target))
    ways = {
        "baseline": lambda table, _, dense, target: oracle.druck_smith_gradient(
            table, dense, target
        ),
        "NumPy": lambda table, sparse, _, target: gradient_in_numpy(table, sparse, target),
        "ours": lambda table, sparse, _, target: SpanningTrees(
            table, single_root=True
        ).generalized_expectation(sparse, target)[1],
    }
    results = {name: [way(*item) for item in items] for name, way in ways.items()}
    seconds = interleaved_medians(
        {name: lambda way=way: [way(*item) for item in items] for name, way in ways.items()}
    )
    pairs = zip(results["ours"], results["baseline"], strict=True)
    values = [criterion(table, sparse, target)[0] for table, sparse, _, target in items]
    return {
        "sentences": len(items),
        "mean words": float(np.mean([len(item[0]) - 1 for item in items])),
        "mean criterion": float(np.mean(values)),
        "difference": max(float(np.abs(a - b).max()) for a, b in pairs),
        "paper": "9",
        **quotients(seconds),
        "seconds Druck-Smith": seconds["baseline"],
        "seconds fstgrad": seconds["ours"],
    }


def criterion(table: np.ndarray, features: csr_array, target: np.ndarray) -> tuple:
    return SpanningTrees(table, single_root=True).generalized_expectation(features, target)


def quotients(seconds: dict[str, float]) -> Row:
    return {
        "times, both in NumPy": seconds["baseline"] / seconds["NumPy"],
        "times, fstgrad": seconds["baseline"] / seconds["ours"],
    }


class InNumPy(NamedTuple):
    """Weights w, inverse B of the Laplacian and log Z of one table, with a single root."""

    w: np.ndarray
    inverse: np.ndarray
    log_z: float

    @classmethod
    def of(cls, scores: np.ndarray) -> "InNumPy":
        w = np.exp(scores)
        w[:, 0] = 0.0
        np.fill_diagonal(w, 0.0)
        table = laplacian(w)
        return cls(w, np.linalg.inv(table), float(np.linalg.slogdet(table)[1]))

    def gradient(self, inverse: np.ndarray) -> np.ndarray:
        """Return d log Z / dw, which is linear in the inverse B."""
        own = np.diagonal(inverse).copy()
        own[0] = 0.0
        table = np.zeros_like(self.w)
        table[0, 1:] = inverse[:, 0]
        table[1:, 1:] = own - np.column_stack([np.zeros(len(own)), inverse[:, 1:]]).T
        return table

    def covariance_product(self, v: np.ndarray) -> np.ndarray:
        """Return Cov v: the derivative of the marginals, with dB = -B dL B."""
        change = -self.inverse @ laplacian(self.w * v) @ self.inverse
        return self.w * (v * self.gradient(self.inverse) + self.gradient(change))


def laplacian(w: np.ndarray) -> np.ndarray:
    """Return the Laplacian of a single root, its weights in the first row (Koo et al. 2007)."""
    inner = w[1:, 1:]
    table = np.diag(inner.sum(axis=0)) - inner
    table[0] = w[0, 1:]
    return table


def entropy_in_numpy(scores: np.ndarray) -> float:
    """Return log Z - <marginals, scores>: one inverse, as in the paper."""
    solved = InNumPy.of(scores)
    return solved.log_z - float((solved.w * solved.gradient(solved.inverse) * scores).sum())


def gradient_in_numpy(scores: np.ndarray, features: csr_array, target: np.ndarray) -> np.ndarray:
    """Return the gradient of 1/2 |E f - target|^2: one Hessian-vector product, as in the paper."""
    solved = InNumPy.of(scores)
    gap = features.T @ (solved.w * solved.gradient(solved.inverse)).ravel() - target
    return solved.covariance_product((features @ gap).reshape(scores.shape))
