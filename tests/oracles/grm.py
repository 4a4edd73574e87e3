"""Slow oracles of generalized root models: mpmath integrals, sums over boxes, scipy's solver.

They do not use fstgrad.
"""

import itertools

import mpmath
import numpy as np
from scipy import optimize
from scipy.special import gammaln


def statistics(base, x, k):
    """Return t_1(x), ..., t_k(x) of a number: x^(1/j); gaussian |x|^(2/j), signed for even j."""
    if base == "gaussian":
        return [abs(x) ** (2 / j) * (-1 if j % 2 == 0 and x < 0 else 1) for j in range(1, k + 1)]
    return [x ** (1 / j) for j in range(1, k + 1)]


def log_partition(base, eta):
    """Return A(eta) in nats by mpmath, to about 20 digits."""
    with mpmath.workdps(30):
        if base == "poisson":
            return _log_sum(eta)
        if base == "exponential":
            return _log_half(eta, 1.0)
        mirrored = [e * (-1) ** j for j, e in enumerate(eta)]
        right, left = _log_half(eta, 0.5), _log_half(mirrored, 0.5)
        return right + mpmath.log1p(mpmath.exp(left - right))


def _log_sum(eta):
    """Return log sum_x exp(<eta, t(x)>) / x!, term by term, or by trapezoids for a large mode."""
    parts = [mpmath.mpf(float(e)) for e in eta]

    def log_term(x):
        roots = (e * mpmath.root(x, j) for j, e in enumerate(parts, 1))
        return mpmath.fsum(roots) - mpmath.loggamma(x + 1)

    grid = np.unique(np.concatenate([np.arange(3000.0), np.geomspace(3000, 1e24, 30000).round()]))
    height = sum(e * grid ** (1 / j) for j, e in enumerate(eta, 1)) - gammaln(grid + 1)
    mode = mpmath.mpf(float(grid[np.argmax(height)]))
    if mode < 2000:
        last = int(grid[height > height.max() - 80].max()) + 50
        counts = np.arange(last + 1.0)
        near = sum(e * counts ** (1 / j) for j, e in enumerate(eta, 1)) - gammaln(counts + 1)
        used = np.flatnonzero(near > near.max() - 60)
        top = log_term(mode)
        total = mpmath.fsum(mpmath.exp(log_term(mpmath.mpf(int(x))) - top) for x in used)
        return top + mpmath.log(total)
    for _ in range(80):  # Newton steps to the mode
        slope = parts[0] - mpmath.digamma(mode + 1)
        bend = -mpmath.polygamma(1, mode + 1)
        for j, e in enumerate(parts[1:], 2):
            power = mpmath.mpf(1) / j
            slope += e * power * mode ** (power - 1)
            bend += e * power * (power - 1) * mode ** (power - 2)
        mode -= slope / bend
    step = 1 / mpmath.sqrt(-bend) / 3
    top = log_term(mode)
    values = (mpmath.exp(log_term(mode + i * step) - top) for i in range(-45, 46))
    return top + mpmath.log(step * mpmath.fsum(values))


def _log_half(eta, c):
    """Return the log of the integral over v of c exp(sum_j eta_j e^(v/j) + c v)."""
    parts, log_c = [mpmath.mpf(float(e)) for e in eta], mpmath.log(c)

    def h(v):
        powers = (e * mpmath.exp(v / j) for j, e in enumerate(parts, 1))
        return mpmath.fsum(powers) + c * v + log_c

    grid = np.linspace(-150, 40, 9501)
    height = sum(e * np.exp(grid / j) for j, e in enumerate(eta, 1)) + c * grid
    used = grid[height > height.max() - 70]
    top = h(mpmath.mpf(float(grid[np.argmax(height)])))
    first, last = mpmath.mpf(float(used[0])) - 0.1, mpmath.mpf(float(used[-1])) + 0.1

    def total(start, step, count):
        return mpmath.fsum(mpmath.exp(h(start + i * step) - top) for i in range(count))

    points, step = 200, (last - first) / 200
    value = step * total(first, step, points + 1)
    while True:  # trapezoid rule; halve the step until the value is stable
        before, value = value, (value + step * total(first + step / 2, step, points)) / 2
        points, step = 2 * points, step / 2
        if abs(value - before) < mpmath.mpf(10) ** -17 * value or points > 12000:
            return top + mpmath.log(value)


def potential(base, intercepts, interactions, x):
    """Return log p(x) + A of x (p,); intercepts (p, k), interactions {(root, set): theta}."""
    k = len(intercepts[0])
    t = [statistics(base, value, k) for value in x]
    total = sum(intercepts[s][j] * t[s][j] for s in range(len(x)) for j in range(k))
    for (root, members), theta in interactions.items():
        total += theta * np.prod([t[s][root - 1] for s in members])
    return total - (sum(gammaln(v + 1) for v in x) if base == "poisson" else 0.0)


def count_table(intercepts, interactions, size):
    """Return all x in {0..size-1}^p, their probabilities within this box, and its log Z."""
    box = list(itertools.product(range(size), repeat=len(intercepts)))
    height = np.array([potential("poisson", intercepts, interactions, x) for x in box])
    log_z = np.logaddexp.reduce(height)
    return np.array(box), np.exp(height - log_z), log_z


def columns(x, node, k, every=False):
    """Return the dense columns of a node: {(root, set without node): column (n,)}.

    A column is the product of the members to the power 1 / root.  The sets have `root` members with
    the node, or, with `every`, all sizes from 2 to `root`.
    """
    others = [s for s in range(x.shape[1]) if s != node]
    found = {}
    for root in range(2, k + 1):
        for size in range(2, root + 1) if every else [root]:
            for members in itertools.combinations(others, size - 1):
                found[root, members] = np.prod(x[:, members], axis=1) ** (1 / root)
    return found


def poisson_node(x, node, k, alpha):
    """Solve the l1 node regression by L-BFGS-B on b = u - v, u, v >= 0.

    Return the intercept, {(root, set): coefficient} and the objective.
    """
    found = columns(x, node, k)
    sets, z = list(found), np.stack(list(found.values()), axis=1)
    roots = np.array([root for root, _ in sets])
    counts = np.arange(400.0)
    t = np.stack([counts ** (1 / j) for j in range(1, k + 1)], axis=1)
    observed = np.stack([x[:, node] ** (1 / j) for j in range(1, k + 1)], axis=1)
    m = len(sets)

    def objective(point):
        b = point[1 : 1 + m] - point[1 + m :]
        eta = np.stack(
            [np.full(len(x), point[0])]
            + [z[:, roots == j] @ b[roots == j] for j in range(2, k + 1)],
            axis=1,
        )
        height = eta @ t.T - gammaln(counts + 1)
        value = np.logaddexp.reduce(height, axis=1)
        mean = np.exp(height - value[:, None]) @ t
        residual = mean - observed
        slopes = np.array([z[:, c] @ residual[:, roots[c] - 1] for c in range(m)]) / len(x)
        fit = (value - (eta * observed).sum(axis=1)).mean()
        gradient = np.concatenate([[residual[:, 0].mean()], slopes + alpha, -slopes + alpha])
        return fit + alpha * point[1:].sum(), gradient

    start = np.zeros(1 + 2 * m)
    start[0] = np.log(x[:, node].mean())
    done = optimize.minimize(
        objective, start, jac=True, method="L-BFGS-B",
        bounds=[(None, None)] + [(0, None)] * (2 * m),
        options={"maxiter": 20000, "maxfun": 40000, "ftol": 1e-16, "gtol": 1e-10, "maxcor": 50},
    )  # fmt: skip
    coef = done.x[1 : 1 + m] - done.x[1 + m :]
    return done.x[0], dict(zip(sets, coef.tolist(), strict=True)), done.fun
