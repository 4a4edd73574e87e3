"""Generalized root models: fits, paths, log-partition functions, and nodes against scipy and skglm.

The counts are those of Classic3, words in 3,893 documents.
"""

import pathlib
import resource
import time

import _harness

_harness.one_thread()

import numpy as np  # noqa: E402
from scipy import optimize, sparse  # noqa: E402
from scipy.special import gammaln  # noqa: E402

import fstgrad as fg  # noqa: E402
from fstgrad.grm.families import BASES  # noqa: E402
from fstgrad.grm.files import read_table  # noqa: E402
from fstgrad.grm.fitting import solve_nodes  # noqa: E402

CLASSIC3 = pathlib.Path(__file__).parents[1] / "data" / "classic3.mat"
ALPHA, TOL, THREADS = 0.01, 1e-4, 2


def word_counts():
    """Return the counts of Classic3, with columns by decreasing total and rows in random order."""
    counts = read_table(CLASSIC3)[0]
    return counts[np.random.default_rng(0).permutation(counts.shape[0])]


def fit_row(x, threads, repeat, symmetrize="average"):
    """Fit `repeat` times; return the row of the median time and the properties of the fit."""
    seconds = []
    for _ in range(repeat):
        start = time.perf_counter()
        model = fg.GeneralizedRootModel(
            k=3, alpha=ALPHA, tol=TOL, n_jobs=threads, symmetrize=symmetrize
        ).fit(x)
        seconds.append(time.perf_counter() - start)
    median = float(np.median(seconds))
    return {
        "fit": f"classic3 k=3 {symmetrize}",
        "n": x.shape[0],
        "p": x.shape[1],
        "candidates": model.n_candidates_,
        "threads": threads,
        "runs": repeat,
        "seconds": median,
        "KKT": float(model.kkt_.max()),
        "sets": int(model.parameters_.flat[3].size),
        "peak GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def fit_rows(quick):
    x = word_counts()
    fg.GeneralizedRootModel(k=3, alpha=0.5, tol=TOL).fit(x[:, :5])  # compiles
    repeat = 1 if quick else 5
    for p in (100,) if quick else (100, 200, 500, 1000):
        yield fit_row(x[:, :p], THREADS, repeat)
    if quick:
        return
    yield fit_row(x[:, :500], 1, repeat)
    yield fit_row(x[:, :500], THREADS, repeat, "joint")
    for n in (500, 1000, 2000):
        part = x[:n, :500]
        yield fit_row(part[:, part.getnnz(axis=0) > 0], THREADS, repeat)


def route_rows(quick):
    """Time A(eta) by the direct method and by bounds, with the width of each interval (nats)."""
    rng = np.random.default_rng(0)
    count = 200 if quick else 2000
    for name in ("poisson", "exponential", "gaussian"):
        base = BASES[name]
        eta = rng.uniform(-2, 2, (count, 3))
        if name != "poisson":
            eta[:, 0] = -np.abs(eta[:, 0]) - 0.1
        few = eta[: count // 50]
        direct = _harness.median_seconds(lambda b=base, e=eta: b.log_partition(e)) / len(eta)
        for label, given, settings in (
            ("bounds, d=10", eta, {}),
            ("bounds, tolerance=1e-3", few, {"tolerance": 1e-3}),
        ):
            call = lambda b=base, e=given, s=settings: b.log_partition(e, method="bounds", **s)  # noqa: E731
            seconds = _harness.median_seconds(call) / len(given)
            interval, exact = call(), base.log_partition(given)
            width = interval.upper - interval.lower
            yield {
                "route": f"{name} k=3 {label}",
                "seconds each": seconds,
                "median width": float(np.median(width)),
                "largest width": float(width.max()),
                "seconds direct": direct,
                "direct width": float((exact.upper - exact.lower).max()),
                "times direct is faster": seconds / direct,
            }


def dense_node(x, node, alpha):
    """Solve a dense pairwise node regression by L-BFGS-B on b = u - v: (seconds, objective)."""
    z = np.sqrt(np.delete(x, node, axis=1))
    y, m = x[:, node], z.shape[1]
    counts = np.arange(60.0)
    t = np.stack([counts, np.sqrt(counts)], axis=1)

    def objective(point):
        eta = np.stack([np.full(len(x), point[0]), z @ (point[1 : 1 + m] - point[1 + m :])], axis=1)
        height = eta @ t.T - gammaln(counts + 1)
        value = np.logaddexp.reduce(height, axis=1)
        residual = np.exp(height - value[:, None]) @ t - np.stack([y, np.sqrt(y)], axis=1)
        slope = z.T @ residual[:, 1] / len(x)
        fit = (value - eta[:, 0] * y - eta[:, 1] * np.sqrt(y)).mean()
        gradient = np.concatenate([[residual[:, 0].mean()], slope + alpha, alpha - slope])
        return fit + alpha * point[1:].sum(), gradient

    start = np.zeros(1 + 2 * m)
    start[0] = np.log(y.mean())
    begin = time.perf_counter()
    done = optimize.minimize(
        objective, start, jac=True, method="L-BFGS-B",
        bounds=[(None, None)] + [(0, None)] * (2 * m),
        options={"maxiter": 5000, "maxfun": 5000, "ftol": 1e-15, "gtol": TOL},
    )  # fmt: skip
    return time.perf_counter() - begin, done.fun


def node_rows(quick):
    """Compare k = 2 fits of all nodes with scipy's L-BFGS-B at the same optimality."""
    x = word_counts()
    for p in (10,) if quick else (10, 30):
        part = x[: 500 if quick else None, :p]
        model = fg.GeneralizedRootModel(k=2, alpha=ALPHA, tol=TOL, symmetrize="average")
        ours = _harness.median_seconds(lambda m=model, d=part: m.fit(d))
        dense = part.toarray()
        theirs = [dense_node(dense, node, ALPHA) for node in range(p)]
        worst = max(
            fit.objective - objective
            for fit, (_, objective) in zip(model.node_fits_, theirs, strict=True)
        )
        total = sum(seconds for seconds, _ in theirs)
        yield {
            "all nodes": "classic3 k=2",
            "n": part.shape[0],
            "p": p,
            "seconds": ours,
            "seconds L-BFGS-B": total,
            "ratio": total / ours,
            "objective above L-BFGS-B": worst,
        }


def poisson_nodes(x):
    """Fit one l1-penalised Poisson regression per column by skglm; return the largest violation.

    Each column is regressed on the square roots of the others, with the sparse design, the penalty
    and the tolerance of the pairwise root model.  skglm has no family with the term x^(1/2);
    its log-partition function is therefore a single exponential, which is less work.
    """
    from skglm.datafits import Poisson
    from skglm.penalties import L1
    from skglm.solvers import ProxNewton

    roots = sparse.csc_matrix(x.sqrt())
    solver = ProxNewton(tol=TOL, fit_intercept=True, max_iter=50, max_pn_iter=200)
    worst, others = 0.0, np.ones(x.shape[1], dtype=bool)
    for node in range(x.shape[1]):
        others[node] = False
        z, y = roots[:, others], x[:, [node]].toarray().ravel()
        others[node] = True
        found = solver.solve(z, y, Poisson(), L1(ALPHA))[0]
        coef, head = found[:-1], found[-1]
        residual = np.exp(z @ coef + head) - y
        slope = z.T @ residual / len(y)
        used = np.abs(slope + ALPHA * np.sign(coef))[coef != 0]
        idle = np.abs(slope)[coef == 0] - ALPHA
        each = (used.max(initial=0), idle.max(initial=0), abs(residual.mean()))
        worst = max(worst, float(max(each)))
    return worst


def nodes_alone(model, x):
    """Solve the node regressions without merging them into one model, as skglm does."""
    problem = model._prepared(x, None, None, None)
    return solve_nodes(problem, problem.design({}), model._settings(), None)


def cpu_seconds(call):
    """Return the CPU seconds and the result of a call."""
    start = time.process_time()
    result = call()
    return time.process_time() - start, result


def poisson_rows(quick):
    """Compare the CPU seconds of k = 2 fits of all nodes with those of skglm."""
    try:
        import skglm  # noqa: F401
    except ImportError:
        print("skglm is not installed: its rows are left out")
        return
    x = word_counts()
    model = fg.GeneralizedRootModel(k=2, alpha=ALPHA, tol=TOL, symmetrize="average")
    for p in (10,) if quick else (100, 200, 500):
        part = sparse.csr_matrix(x[: 500 if quick else None, :p])
        model.fit(part[:, :10])
        poisson_nodes(part[:, :10])  # compiles
        ours, alone, theirs = [], [], []
        for _ in range(1 if quick else 3):
            ours.append(cpu_seconds(lambda d=part: model.fit(d))[0])
            alone.append(cpu_seconds(lambda d=part: nodes_alone(model, d))[0])
            seconds, worst = cpu_seconds(lambda d=part: poisson_nodes(d))
            theirs.append(seconds)
        yield {
            "all nodes": "classic3 k=2",
            "n": part.shape[0],
            "p": p,
            "CPU seconds": min(ours),
            "CPU seconds of the nodes": min(alone),
            "KKT": float(max(fit.kkt for fit in model.node_fits_)),
            "CPU seconds skglm": min(theirs),
            "KKT skglm": worst,
            "ratio": min(theirs) / min(ours),
            "ratio of the nodes": min(theirs) / min(alone),
        }


def path_rows(quick):
    """Time paths down to 1 percent of the largest alpha, and as many single fits."""
    x = word_counts()
    for k, n, p in ((2, 300, 10),) if quick else ((2, 1500, 30), (2, 1500, 60), (3, 800, 40)):
        part = x[:n, :p]
        model = fg.GeneralizedRootModel(k=k, tol=TOL)
        for count in (10, 30):
            alphas = np.geomspace(1.0, 0.01, count) * model.alpha_max(part)
            seconds = _harness.seconds_of(lambda m=model, d=part, a=alphas: m.path(d, a))
            single = [fg.GeneralizedRootModel(k=k, tol=TOL, alpha=a) for a in alphas]
            alone = _harness.seconds_of(lambda s=single, d=part: [m.fit(d) for m in s])
            yield {
                "path": f"classic3 k={k}",
                "n": n,
                "p": p,
                "alphas": count,
                "sets at the end": int(single[-1].parameters_.flat[3].size),
                "seconds": seconds,
                "seconds of single fits": alone,
                "times faster": alone / seconds,
            }


def rows(quick):
    yield from fit_rows(quick)
    yield from path_rows(quick)
    yield from route_rows(quick)
    yield from node_rows(quick)
    yield from poisson_rows(quick)


if __name__ == "__main__":
    _harness.run("Generalized root models", rows)
