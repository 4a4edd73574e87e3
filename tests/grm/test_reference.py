"""The definition of the node regression in NumPy, and what a fit runs."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.grm import reference
from fstgrad.grm.design import terms_of
from fstgrad.grm.families import resolve
from tests.helpers.counts import coefficients, counts

pytest.importorskip("sklearn")
CASES = [
    ("poisson", 2, "strongest"),
    ("poisson", 3, "strongest"),
    ("poisson", 3, "all"),
    ("bernoulli", 2, "strongest"),
    ("exponential", 2, "strongest"),
    ("exponential", 3, "all"),
    ("gaussian", 2, "strongest"),
    ("gaussian", 3, "strongest"),
]
ALPHA = 0.05


def data(base):
    rng = np.random.default_rng(4)
    if base == "gaussian":
        return rng.normal(size=(120, 4)) + 0.5 * rng.normal(size=(120, 1))
    if base == "exponential":
        return rng.exponential(1.0, (120, 4)) + 0.3 * rng.exponential(1.0, (120, 1))
    x = counts(n=120, p=4).astype(float)
    return (x > 0).astype(float) if base == "bernoulli" else x


def fitted(base, k, interactions):
    """The data, the terms, the family and the model of a case, without tied parameters."""
    x = data(base)
    model = fg.GeneralizedRootModel(
        k, base, ALPHA, interactions=interactions, symmetrize="average", tol=1e-7
    ).fit(x)
    return x, terms_of(k, interactions), resolve(base), model


def theta_of(model, node, sets, coordinates):
    """The parameters of a node regression in the order of the reference."""
    fit = model.node_fits_[node]
    theta = {
        (root, tuple(sorted((node, *others)))): value
        for (root, others), value in coefficients(fit, model).items()
    }
    for coordinate, value in zip(coordinates, fit.intercepts, strict=True):
        theta[int(coordinate) + 1, (node,)] = float(value)
    assert not theta.keys() - set(sets)
    return np.array([theta.get(each, 0.0) for each in sets])


@pytest.mark.parametrize("base, k, interactions", CASES)
def test_a_fit_has_the_objective_and_the_certificate_of_the_definition(base, k, interactions):
    x, terms, family, model = fitted(base, k, interactions)
    coordinates = sorted(
        set(family.free_coordinates(k)) | {t.root - 1 for t in terms if t.size == 1}
    )
    for node in range(4):
        sets = reference.sets_of_node(node, 4, terms, family, k)
        theta = theta_of(model, node, sets, coordinates)
        z, t = reference.columns(x, node, sets, family, k), family.statistics(x[:, node], k)
        weights = reference.penalties(node, sets, family, k, ALPHA)
        value, slopes = reference.loss(theta, z, sets, t, family)
        fit = model.node_fits_[node]
        assert value + weights @ np.abs(theta) == pytest.approx(fit.objective, abs=1e-12)
        assert reference.violation(theta, slopes, weights) == pytest.approx(fit.kkt, abs=1e-12)


@pytest.mark.parametrize("base, k, interactions", CASES)
def test_a_fit_is_the_minimum_of_the_definition(base, k, interactions):
    x, terms, family, model = fitted(base, k, interactions)
    for node in (0, 3):
        theta, minimum = reference.node_regression(x, node, terms, family, k, ALPHA, tol=1e-5)
        fit = model.node_fits_[node]
        assert fit.objective == pytest.approx(minimum, abs=1e-7)
        chosen = {S: v for S, v in theta.items() if abs(v) > 1e-2 and len(S[1]) > 1}
        mine = coefficients(fit, model)
        for (root, members), value in chosen.items():
            others = tuple(m for m in members if m != node)
            assert mine[root, others] == pytest.approx(value, abs=1e-2)


def test_the_loss_has_its_gradient():
    x, terms, family, _ = fitted("poisson", 3, "all")
    sets = reference.sets_of_node(1, 4, terms, family, 3)
    z, t = reference.columns(x, 1, sets, family, 3), family.statistics(x[:, 1], 3)
    theta = np.random.default_rng(0).normal(scale=0.05, size=len(sets))
    slopes = reference.loss(theta, z, sets, t, family)[1]
    for m in range(len(sets)):
        step = 1e-5 * np.eye(len(sets))[m]
        up, down = (reference.loss(theta + s * step, z, sets, t, family)[0] for s in (1, -1))
        assert slopes[m] == pytest.approx((up - down) / 2e-5, abs=1e-7)
