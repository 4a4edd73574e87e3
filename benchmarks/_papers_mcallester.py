"""McAllester's slides on exponential softmax (TTIC 31230, 2019), for `papers.py`.

Each theorem and each algorithm on the slides is checked against sums over all labelings and, for
chains, against matrices of transition probabilities that are written here from the definitions.
The slides print no numbers; the problems have solutions in closed form.
"""

import itertools
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from _harness import Row
from _papers import Section
from scipy.optimize import minimize
from scipy.stats import chi2

from fstgrad import PairwiseMRF, plot
from fstgrad.mrf import reference
from fstgrad.mrf.sampling.chains import Chain, Sampler, new_keys

ROOT = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.oracles import mrf as oracle  # noqa: E402


def sections(quick: bool) -> Iterator[Section]:
    """Yield the theorems and algorithms in the order of the slides."""
    yield gradient()
    yield belief_propagation_on_trees()
    yield belief_propagation_on_loops()
    yield chains(quick)
    yield convergence(quick)
    yield pseudolikelihood(quick)
    yield contrastive_divergence(quick)
    yield problems()


class Enumerated(NamedTuple):
    """All labelings (t, I) of a model, their parts (t, parts) and probabilities (t,)."""

    labelings: np.ndarray
    parts: np.ndarray
    p: np.ndarray
    log_z: float

    @classmethod
    def of(cls, m: PairwiseMRF) -> "Enumerated":
        node, edge, edges = m.scores.node, m.scores.edge, m.graph.edges
        labelings = np.array(oracle.labelings(m.labels_per_node))
        tables = [oracle.parts(y, node.shape, edges) for y in labelings]
        parts = np.array([flat(table) for table in tables])
        scores = parts @ flat((node, edge))
        log_z = np.logaddexp.reduce(scores)
        return cls(labelings, parts, np.exp(scores - log_z), float(log_z))

    def number(self, y: np.ndarray) -> int:
        """Return the row of a labeling."""
        return int(np.flatnonzero((self.labelings == y).all(axis=1))[0])


def flat(table: tuple) -> np.ndarray:
    """Return the node and edge scores, or their gradient, as one vector."""
    return np.concatenate([np.ravel(table[0]), np.ravel(table[1])])


def random_field(
    rng: np.random.Generator, height: int, width: int, labels: int, *, spread: float = 1.0
) -> PairwiseMRF:
    """Return a grid with normal scores of standard deviation `spread` for each node and edge."""
    edges = 2 * height * width - height - width
    return PairwiseMRF.grid(
        height, width, spread * rng.normal(size=(height * width, labels)),
        spread * rng.normal(size=(edges, labels, labels)),
    )  # fmt: skip


def noisy_square(side: int, coupling: float, seed: int = 0) -> tuple[PairwiseMRF, np.ndarray]:
    """Return a Potts field of noisy observations of a square, and the square (side, side)."""
    gold = np.zeros((side, side), dtype=int)
    gold[side // 4 : -(side // 4), side // 4 : -(side // 4)] = 1
    noise = np.random.default_rng(seed).normal(size=(side, side))
    node = np.stack([np.zeros(side * side), (2 * gold - 1 + 1.5 * noise).ravel()], axis=1)
    return PairwiseMRF.grid(side, side, node, coupling * np.eye(2)), gold


def gradient() -> Section:
    """Return the gradient of -log P(y): the difference of two expectations."""
    rng = np.random.default_rng(0)
    m = random_field(rng, 2, 3, 3)
    exact = Enumerated.of(m)
    gold = exact.labelings[100]
    value, table = m.nll(gold)
    difference = exact.p @ exact.parts - exact.parts[100]
    step, direction = 1e-5, rng.normal(size=len(difference))
    at = flat(m.scores)
    ends = [with_flat(m, at + sign * step * direction).nll(gold)[0] for sign in (1, -1)]
    slope, nodes = (ends[0] - ends[1]) / (2 * step), m.scores.node.size
    rows = [
        compared("log Z", m.log_partition(), exact.log_z),
        compared("-log P(y)", value, -np.log(exact.p[100])),
        compared(
            "gradient by s^N: P(c at n) - 1[y[n] = c]", table.node.ravel(), difference[:nodes]
        ),
        compared("gradient by s^E", table.edge.ravel(), difference[nodes:]),
        compared("its product with a direction, by differences", flat(table) @ direction, slope),
    ]
    picture, square = noisy_square(12, 1.0)
    by_node = picture.nll(square.ravel())[1].node[:, 1].reshape(square.shape)
    marginals = picture.marginals().node[:, 1].reshape(square.shape)
    return Section(
        "Exponential softmax",
        "the gradient of the loss is a difference of expectations",
        rows,
        f"the theorem holds: {agreement(rows[:4])}, and {rows[4]['difference']:.0e} from central "
        "differences, which are that far from a derivative",
        "loss(s, y) = -log P_s(y); s.grad is the expectation of the indicators under P_s minus "
        "those of y: `nll(gold)`. The model is a grid of 2 x 3 nodes with 3 labels and normal "
        "scores; the sums are over its 729 labelings. A row shows the entry of the largest "
        "absolute value, and the largest difference of all entries. The picture: a field of noisy "
        "observations of a square (12 x 12, exact marginals), and where its gradient is large.",
        {
            "gradient": plot.strip(
                {"y": square, "P(1)": marginals, "size of the gradient": np.abs(by_node)}
            )
        },
        tolerance=1e-7,
    )


def with_flat(m: PairwiseMRF, scores: np.ndarray) -> PairwiseMRF:
    """Return the model with the scores of one vector, as `flat` returns them."""
    node, edge = np.split(scores, [m.scores.node.size])
    return m.with_scores(node.reshape(m.scores.node.shape), edge.reshape(m.scores.edge.shape))


def compared(quantity: str, ours: object, expected: object) -> Row:
    """Return a row: the entry that is largest in absolute value, and the largest difference."""
    a, b = np.atleast_1d(np.asarray(ours, float)), np.atleast_1d(np.asarray(expected, float))
    place = np.abs(b).argmax()
    return {
        "quantity": quantity, "ours": float(a[place]), "by definition": float(b[place]),
        "difference": float(np.abs(a - b).max()),
    }  # fmt: skip


def agreement(rows: list[Row]) -> str:
    return f"the largest difference is {max(row['difference'] for row in rows):.0e}"


def belief_propagation_on_trees() -> Section:
    """Return messages, beliefs and log Z of a tree."""
    rng = np.random.default_rng(1)
    nodes, labels = 8, 3
    edges = np.array([(int(rng.integers(n)), n) for n in range(1, nodes)])
    s_n = rng.normal(size=(nodes, labels))
    s_e = rng.normal(size=(nodes - 1, labels, labels))
    m = PairwiseMRF(s_n, s_e, edges)
    exact = Enumerated.of(m)
    expected = exact.p @ exact.parts
    found = m.infer("bp")
    z = np.ones((2 * len(edges), labels))
    errors = []
    for _ in range(nodes):
        beliefs = np.array([reference.node_belief(n, s_n, edges, z) for n in range(nodes)])
        beliefs /= beliefs.sum(axis=1, keepdims=True)
        errors.append(float(np.abs(beliefs.ravel() - expected[: beliefs.size]).max()))
        z = reference.updated_messages(s_n, s_e, edges, z)
    rows = [
        compared("log Z", found.log_partition, exact.log_z),
        compared("beliefs of nodes", found.node.ravel(), expected[: s_n.size]),
        compared("beliefs of edges", np.ravel(found.edge), expected[s_n.size :]),
    ]
    drawn = [max(error, 1e-17) for error in errors]
    return Section(
        "Belief propagation",
        "exact on trees",
        rows,
        f"exact: {agreement(rows)}",
        "A random tree of 8 nodes with 3 labels, against sums over its 6,561 labelings. "
        "`infer(\"bp\")` sends each message once, from the leaves to a root and back; the picture "
        "has the error of the beliefs if all messages are sent at once, again and again, which is "
        "0 after as many rounds as the tree is wide.",
        {
            "error-by-round": plot.curves(
                {"a tree of 8 nodes": {"beliefs": (range(nodes), drawn)}},
                xlabel="rounds", ylabel="largest error",
            )
        },
    )  # fmt: skip


def belief_propagation_on_loops() -> Section:
    """Return the errors of loopy belief propagation by the strength of the coupling."""
    side, rows = 8, []
    couplings = [0.25, 0.5, 1.0, 1.5, 2.0]
    for coupling in couplings:
        m, _ = noisy_square(side, coupling, seed=1)
        found = m.infer("bp", tol=1e-10, damping=0.3, max_iter=5000)
        exact = m.marginals().node
        rows.append(
            {
                "coupling": coupling, "log Z": m.log_partition(),
                "Bethe estimate": found.log_partition,
                "difference": found.log_partition - m.log_partition(),
                "largest error of P(1)": float(np.abs(found.node - exact).max()),
                "mean error of P(1)": float(np.abs(found.node - exact).mean()),
                "converged": bool(found.converged),
            }
        )  # fmt: skip
    shape = (side, side)
    m, _ = noisy_square(side, 1.0, seed=1)
    p = m.marginals().node[:, 1].reshape(shape)
    beliefs = m.infer("bp", damping=0.3, max_iter=5000).node[:, 1].reshape(shape)
    worst = max(rows, key=lambda row: row["largest error of P(1)"])
    least = min(rows, key=lambda row: row["largest error of P(1)"])
    return Section(
        "Loopy belief propagation",
        "marginals on graphs with loops are approximations",
        rows,
        "as the slides say, no longer exact: P(1) is off by up to "
        f"{least['largest error of P(1)']:.1g} at the coupling {least['coupling']:g}, and by up to "
        f"{worst['largest error of P(1)']:.1g} at {worst['coupling']:g}; where the field is almost "
        "decided, little is left to be wrong about",
        "A field of noisy observations of a square (8 x 8, two labels, 112 edges), against exact "
        "elimination. The coupling is the score of an edge whose ends agree, in nats. Messages "
        "are damped by 0.3 and iterated to changes of 1e-10. The picture of marginals is for the "
        "coupling 1.",
        {
            "marginals-on-a-grid": plot.strip(
                {
                    "P(1), exact": p,
                    "P(1), beliefs": beliefs,
                    "size of the error": np.abs(beliefs - p),
                }
            ),
            "error-by-coupling": plot.curves(
                {
                    "8 x 8": {
                        name: (couplings, [abs(row[column]) for row in rows])
                        for name, column in (
                            ("largest error of P(1)", "largest error of P(1)"),
                            ("log Z, nats", "difference"),
                        )
                    }
                },
                xlabel="coupling, nats", ylabel="error",
            ),
        },
        tolerance=1e-6,
    )  # fmt: skip


def transitions(exact: Enumerated, labels: int, kind: str) -> np.ndarray:
    """Return the transition matrix of one step at one node, chosen uniformly, by the definition.

    "metropolis": another label is proposed uniformly and accepted with min(1, P(y') / P(y)).
    "gibbs": the label is drawn given all others.
    """
    count, nodes = exact.labelings.shape
    powers = labels ** np.arange(nodes)[::-1]
    t = np.zeros((count, count))
    for y, n in itertools.product(range(count), range(nodes)):
        base = y - exact.labelings[y, n] * powers[n]
        others = base + np.arange(labels) * powers[n]
        if kind == "gibbs":
            t[y, others] += exact.p[others] / exact.p[others].sum() / nodes
        else:
            accepted = np.minimum(1.0, exact.p[others] / exact.p[y]) / (nodes * (labels - 1))
            t[y, others] += np.where(others == y, 0.0, accepted)
    t[np.arange(count), np.arange(count)] += 1.0 - t.sum(axis=1)
    return t


def site_by_site(exact: Enumerated, labels: int, nodes: np.ndarray) -> np.ndarray:
    """Return the transition matrix of Gibbs draws at the given nodes, one after the other."""
    count = len(exact.p)
    powers = labels ** np.arange(exact.labelings.shape[1])[::-1]
    sweep = np.eye(count)
    for n in nodes:
        t = np.zeros((count, count))
        for y in range(count):
            others = y - (exact.labelings[y, n] - np.arange(labels)) * powers[n]
            t[y, others] = exact.p[others] / exact.p[others].sum()
        sweep = sweep @ t
    return sweep


def chains(quick: bool) -> Section:
    """Return stationarity, detailed balance, and the moves of the library's chains."""
    m = random_field(np.random.default_rng(2), 2, 3, 3)
    exact = Enumerated.of(m)
    nodes = exact.labelings.shape[1]
    start, draws = exact.number(np.zeros(nodes)), 5_000 if quick else 50_000
    rows, curves = [], {}
    for kind in ("metropolis", "gibbs"):
        t = transitions(exact, 3, kind)
        flow = exact.p[:, None] * t
        sweep = np.linalg.matrix_power(t, nodes)
        statistic, freedom = goodness(m, kind, start, sweep[start], draws)
        scaled = np.sqrt(exact.p)[:, None] * t / np.sqrt(exact.p)
        rows.append(
            {
                "chain": kind,
                "stationarity, |P T - P|": float(np.abs(exact.p @ t - exact.p).max()),
                "detailed balance": float(np.abs(flow - flow.T).max()),
                "second eigenvalue": float(np.linalg.eigvalsh((scaled + scaled.T) / 2)[-2]),
                "draws of fstgrad": draws,
                "chi square": statistic,
                "cells": freedom + 1,
                "p-value": float(chi2.sf(statistic, freedom)),
            }
        )
        row, distances = np.eye(len(t))[start], []
        for _ in range(60):
            distances.append(float(np.abs(row - exact.p).sum() / 2))
            row = row @ t
        curves[kind] = (range(60), distances)
    worst = max(row["stationarity, |P T - P|"] for row in rows)
    return Section(
        "MCMC sampling",
        "P is stationary under Metropolis and Gibbs steps",
        rows,
        f"P T = P to {worst:.0e}, and both satisfy detailed balance; the library's chains move as "
        f"their matrices say (p-values {rows[0]['p-value']:.2f} and {rows[1]['p-value']:.2f})",
        "T is the matrix of one step on the 729 labelings of a grid of 2 x 3 nodes with 3 labels, "
        "written from the slides: a node is chosen uniformly; Metropolis proposes another label "
        "and accepts it with min(1, P(y') / P(y)), Gibbs draws the label given all others. The "
        "library's chains (`infer(\"metropolis\")`, `infer(\"gibbs\")`) start at the labeling of "
        "zeros and make one sweep, 6 such steps; their end points are compared with the row of "
        "T^6 by a chi-square test, in which cells of fewer than 10 expected draws are joined. The "
        "picture has the distance of the row of T^k to P, in total variation: the second "
        "eigenvalue is its rate.",
        {"distance-by-step": plot.curves({"729 labelings": curves}, xlabel="steps",
                                         ylabel="total variation")},
        tolerance=1e-8,
    )  # fmt: skip


def goodness(
    m: PairwiseMRF, sampler: Sampler, start: int, expected: np.ndarray, draws: int
) -> tuple[float, int]:
    """Return chi square and its degrees of freedom for the ends of sweeps that begin at zeros."""
    powers = 3 ** np.arange(m.num_nodes)[::-1]
    zeros, counts = np.zeros(m.num_nodes, dtype=np.int64), np.zeros(len(expected))
    for key in new_keys(np.random.default_rng(3), draws):
        chain = Chain(m, sampler, zeros, key)
        chain.advance(1)
        counts[chain.labels @ powers] += 1
    is_large = expected * draws >= 10
    sizes = np.append(expected[is_large], expected[~is_large].sum()) * draws
    found = np.append(counts[is_large], counts[~is_large].sum())
    used = sizes > 0
    return float(((found - sizes)[used] ** 2 / sizes[used]).sum()), int(used.sum()) - 1


def convergence(quick: bool) -> Section:
    """Return errors of marginals from chains, which fall as the root of the number of draws."""
    m = random_field(np.random.default_rng(2), 2, 3, 3)
    exact = m.marginals().node
    rows, curves = [], {}
    for sampler in ("metropolis", "gibbs"):
        errors = []
        sizes = [4**i for i in range(3, 7 if quick else 9)]
        for size in sizes:
            found = m.infer(sampler, samples=size, burn_in=100, chains=4, batches=4, rng=0)
            errors.append(float(np.sqrt(np.mean((found.node - exact) ** 2))))
            rows.append(
                {
                    "chain": sampler, "sweeps of 4 chains": size,
                    "root mean square error": errors[-1],
                    "error times root of sweeps": errors[-1] * np.sqrt(4 * size),
                }
            )  # fmt: skip
        curves[sampler] = (np.log2(sizes).tolist(), errors)
    largest = max(row["error times root of sweeps"] for row in rows)
    return Section(
        "MCMC sampling",
        "marginals from chains",
        rows,
        "the errors fall as the root of the number of draws: their products with it stay between "
        f"{min(row['error times root of sweeps'] for row in rows):.2g} and {largest:.2g}",
        "The model of the last section; the marginals of the nodes from the draws of 4 chains "
        "after 100 sweeps, against exact ones.",
        {
            "error-by-sweeps": plot.curves(
                {"2 x 3 nodes": curves}, xlabel="log2 of the sweeps", ylabel="error of marginals"
            )
        },
    )


def pseudolikelihood(quick: bool) -> Section:
    """Return the gradient at the truth, and fits to samples of growing size."""
    rng = np.random.default_rng(4)
    m = random_field(rng, 2, 2, 3, spread=0.5)
    exact, other = Enumerated.of(m), with_flat(m, 0.3 * rng.normal(size=flat(m.scores).size))
    rows: list[Row] = []
    for name, model in (("of the data", m), ("others", other)):
        table = sum(
            p * flat(model.nll(y, "pseudolikelihood")[1])
            for p, y in zip(exact.p, exact.labelings, strict=True)
        )
        definition = sum(
            p * flat(reference.pseudolikelihood(*model.scores[:2], model.graph.edges, y)[1:])
            for p, y in zip(exact.p, exact.labelings, strict=True)
        )
        rows.append(
            {
                "scores": name, "expected gradient": float(np.abs(table).max()),
                "difference to the definition": float(np.abs(table - definition).max()),
            }
        )  # fmt: skip
    sizes, repeats = [1000 * 4**i for i in range(2 if quick else 5)], 4 if quick else 10
    curves: dict[str, list[float]] = {"pseudolikelihood": [], "likelihood": []}
    for size in sizes:
        row: Row = {"samples": size, "repeats": repeats}
        drawn = np.random.default_rng(size).multinomial(size, exact.p, size=repeats) / size
        for name, loss in (("pseudolikelihood", pseudo_loss), ("likelihood", exact_loss)):
            distance = np.mean([fitted_kl(exact, loss(m, exact, weights)) for weights in drawn])
            row[f"KL of the fit by {name}"] = float(distance)
            row[f"KL times samples, {name}"] = float(distance) * size
            curves[name].append(float(distance))
        rows.append(row)
    free = 4 * 2 + 4 * 4
    last = rows[-1]
    return Section(
        "Pseudolikelihood",
        "its minimum is the truth (consistency)",
        rows,
        "consistent: if the data have the distribution P_s, the expected gradient at s is "
        f"{rows[0]['expected gradient']:.0e}, and fits to samples approach P "
        "as 1 / samples: KL times samples is "
        f"{last['KL times samples, pseudolikelihood']:.3g} at the end, and "
        f"{last['KL times samples, likelihood']:.3g} for the likelihood, whose limit is half the "
        f"number of free scores in the mean, {free / 2:g}",
        "The loss is -sum over n of log P(y[n] | y without n); of its expected gradient, the table "
        "has the largest entry. The model is a loop of 4 nodes with 3 labels (81 labelings) and "
        "normal scores of standard deviation 0.5. Samples are drawn from it, and all its scores "
        "are fitted by L-BFGS with the exact gradient of either loss (`nll` with the methods "
        "pseudolikelihood and exact). KL is KL(P || fit) in nats, by enumeration, the mean of the "
        "repeats.",
        {
            "kl-by-samples": plot.curves(
                {
                    "a loop of 4 nodes": {
                        name: (np.log2(sizes).tolist(), values) for name, values in curves.items()
                    }
                },
                xlabel="log2 of the samples", ylabel="KL, nats",
            )
        },
        tolerance=1e-4,
    )  # fmt: skip


Loss = Callable[[np.ndarray], tuple[float, np.ndarray]]


def pseudo_loss(m: PairwiseMRF, exact: Enumerated, weights: np.ndarray) -> Loss:
    """Return the mean pseudolikelihood loss of weighted labelings, as a function of the scores."""
    seen = np.flatnonzero(weights)

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        model = with_flat(m, theta)
        results = [model.nll(exact.labelings[y], "pseudolikelihood") for y in seen]
        value = sum(weights[y] * value for y, (value, _) in zip(seen, results, strict=True))
        return value, sum(weights[y] * flat(g) for y, (_, g) in zip(seen, results, strict=True))

    return loss


def exact_loss(m: PairwiseMRF, exact: Enumerated, weights: np.ndarray) -> Loss:
    """Return the mean of -log P of weighted labelings."""
    statistics = weights @ exact.parts

    def loss(theta: np.ndarray) -> tuple[float, np.ndarray]:
        model = with_flat(m, theta)
        value = model.log_partition() - statistics @ flat(model.scores)
        return value, flat(model.marginals()) - statistics

    return loss


def fitted_kl(exact: Enumerated, loss: Loss) -> float:
    """Return KL(P || fit) of the fit that begins at scores of 0."""
    fit = minimize(
        loss, np.zeros(exact.parts.shape[1]), jac=True, method="L-BFGS-B",
        options={"maxiter": 2000, "ftol": 1e-15, "gtol": 1e-9, "maxcor": 30},
    )  # fmt: skip
    scores = exact.parts @ fit.x
    return float(exact.p @ (np.log(exact.p) - scores + np.logaddexp.reduce(scores)))


def contrastive_divergence(quick: bool) -> Section:
    """Return CD-k for k steps at single nodes and for k sweeps, beside the exact gradient."""
    m = random_field(np.random.default_rng(5), 2, 3, 3)
    exact = Enumerated.of(m)
    nodes = exact.labelings.shape[1]
    y = 100
    gold, start = exact.labelings[y], np.eye(len(exact.p))[y]
    step = transitions(exact, 3, "gibbs")
    colour = np.indices((2, 3)).sum(axis=0).ravel() % 2
    sweep = site_by_site(exact, 3, np.argsort(colour, kind="stable"))
    at_truth = exact.p @ step @ exact.parts - exact.p @ exact.parts
    expected_one = nodes * (start @ step @ exact.parts - exact.parts[y])
    rows: list[Row] = [
        compared(
            "E of CD(1), times the nodes", expected_one, flat(m.nll(gold, "pseudolikelihood")[1])
        )
        | {"theorem": "it is the gradient of the pseudolikelihood"},
        compared("CD(1) if the data have the distribution P", at_truth, np.zeros(len(at_truth)))
        | {"theorem": "it is 0 in the mean"},
    ]
    true_gradient = exact.p @ exact.parts - exact.parts[y]
    number = 2_000 if quick else 8_000
    curves = {}
    for steps, matrix in (("nodes", step), ("sweeps", sweep)):
        xs, biases = [], []
        for k in (1, 2, 3, 6, 12, 30, 60) if steps == "nodes" else (1, 2, 3, 5, 10):
            ends = start @ np.linalg.matrix_power(matrix, k)
            mean = ends @ exact.parts
            deviation = np.sqrt(np.maximum(mean * (1 - mean), 0.0) / number)
            found = flat(m.nll(gold, "cd", k=k, steps=steps, chains=number, rng=k)[1])
            gaps = np.abs(found - (mean - exact.parts[y]))
            bias = float(np.abs(mean - exact.parts[y] - true_gradient).max())
            rows.append(
                {
                    "steps": steps, "k": k, "draws at nodes": k if steps == "nodes" else k * nodes,
                    "bias of CD-k": bias,
                    "largest gap of fstgrad, standard errors": float(
                        (gaps[deviation > 0] / deviation[deviation > 0]).max()
                    ),
                }
            )  # fmt: skip
            xs.append(rows[-1]["draws at nodes"])
            biases.append(bias)
        curves[f"k {'single nodes' if steps == 'nodes' else 'sweeps'}"] = (xs, biases)
    gaps = [row["largest gap of fstgrad, standard errors"] for row in rows[2:]]
    return Section(
        "Contrastive divergence",
        "k steps at single nodes, as on the slides, and k sweeps",
        rows,
        "CD(1) of the slides is the gradient of the pseudolikelihood in the mean, up to the factor "
        f"of the number of nodes (to {rows[0]['difference']:.0e}). For k single nodes "
        "(`steps=\"nodes\"`) the bias falls slowly, since k draws cannot move more than k nodes; a "
        "sweep, the default, visits every node. What fstgrad draws agrees with the matrices: the "
        f"gaps are at most {max(gaps):.1f} standard errors over {len(flat(m.scores))} entries",
        "The gradient is E[t(y_k)] - t(y), y_k from k steps that begin at y. The bias is its "
        "largest difference to the exact gradient, from the matrix of transitions on the 729 "
        "labelings of a grid of 2 x 3 nodes with 3 labels. On the slides a step draws one node, "
        "chosen uniformly; a sweep of `nll(y, \"cd\")` visits all nodes, by colours of the "
        f"checkerboard. The last column is for {number:,} chains.",
        {"bias-by-draws": plot.curves({"2 x 3 nodes": curves}, xlabel="draws at nodes",
                                      ylabel="bias of the gradient")},
        tolerance=1e-8,
    )  # fmt: skip


def problems() -> Section:
    """Return the solutions of the problems on graphical models that are formulas or numbers."""
    n, e, labels = 12, np.exp(-1.0), np.array([-1.0, 0.0, 1.0])
    rng = np.random.default_rng(6)
    node, edge = rng.normal(size=(n, 3)), rng.normal(size=(3, 3))
    z = np.exp(node[0])
    for scores in node[1:]:
        z = np.exp(scores) * (z @ np.exp(edge))
    spins = line(np.zeros((n, 2)), np.eye(2))
    ring = PairwiseMRF(
        np.zeros((n, 3)), np.outer(labels, labels), [(i, (i + 1) % n) for i in range(n)]
    )
    second = np.full(n, 1)  # the label 1 of the chain, and 0 of the ring
    of_ones = ring.nll(np.full(n, 2), "pseudolikelihood")[0]
    rows: list[Row] = [
        solved(
            "3: chain, labels 0 and 1, score 1 for equal neighbours; P̃ of y = (1, ..., 1)",
            "(1 + e^-1)^-2 (1 + e^-2)^-(n-2)",
            (1 + e) ** -2 * (1 + e**2) ** (2 - n),
            float(np.exp(-spins.nll(second, "pseudolikelihood")[0])),
        ),
        solved(
            "6: chain, random scores; log Z by the recursion Z_t(y)",
            "ln of the sum of Z_n(y)", float(np.log(z.sum())), line(node, edge).log_partition(),
        ),
        solved(
            "7 (a): ring, labels -1, 0, 1, scores y y'; -ln P̃ of y = (0, ..., 0)",
            "n ln 1/3, about 1.1 n", n * np.log(3.0), ring.nll(second, "pseudolikelihood")[0],
        ),
        solved(
            "7 (b): the same, y = (1, ..., 1)",
            "n ln 1 / (1 + e^-2 + e^-4), about .14 n", n * np.log(1 + e**2 + e**4), of_ones,
        ),
        solved(
            "7 (b): P of one label there, given the others",
            "1 / (1 + e^-2 + e^-4), about .87", 1 / (1 + e**2 + e**4), float(np.exp(-of_ones / n)),
        ),
    ]  # fmt: skip
    return Section(
        "Problems for graphical models",
        "solutions that are formulas or numbers",
        rows,
        f"all agree; {agreement(rows)}. The solutions of problem 7 print -ln P̃ as n times the ln "
        "of a probability, which is negative: a misprint; the numbers beside it have the right "
        "sign.",
        f"n is {n}, and P̃ the pseudolikelihood. Problems 6 and 7 are in later editions of the "
        "course (2022). The other problems have no numbers: recursions for hidden Markov models "
        "(1) and for sets of labels (2), proofs (4), and labels that are real numbers (5), which "
        "fstgrad does not have.",
    )


def line(node: np.ndarray, edge: np.ndarray) -> PairwiseMRF:
    """Return the chain with one table of edge scores."""
    return PairwiseMRF(node, edge, [(i, i + 1) for i in range(len(node) - 1)])


def solved(problem: str, printed: str, value: float, ours: float) -> Row:
    """Return a row: a printed solution, its value, and ours."""
    return {
        "problem": problem, "paper": printed, "paper, evaluated": float(value), "ours": ours,
        "difference": abs(float(value) - ours),
    }  # fmt: skip
