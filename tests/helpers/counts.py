"""Counts and parameters of root models."""

import numpy as np

from fstgrad.grm import blocks, families
from fstgrad.grm.design import Term, terms_of
from fstgrad.grm.parameters import Interactions, Parameters


def counts(n=300, p=5, seed=0):
    """Counts with a shared rate, so that sets matter."""
    rng = np.random.default_rng(seed)
    shared = rng.gamma(1.0, size=(n, 1))
    return rng.poisson(0.3 + shared * np.linspace(0.3, 1.0, p))


def parameters(base, intercepts, *terms):
    """Parameters from intercepts (p, k) and ((size, root), {set: theta}) terms."""
    matrix = np.array(intercepts, dtype=float)
    return Parameters(
        (families.BASES[base],) * len(matrix),
        matrix.shape[1],
        matrix,
        tuple(
            Interactions(Term(*term), np.array(list(sets)), np.array(list(sets.values())))
            for term, sets in terms
        ),
    )


def coefficients(fit, model):
    """{(root, set without node): coefficient} of one node regression."""
    terms = [term for term in terms_of(model.k, model.interactions) if term.size > 1]
    binomial = blocks.binomials(model.n_features_in_, model.k)
    found = {}
    for number, key, value in zip(fit.term, fit.key, fit.values, strict=True):
        members = blocks.unrank(np.array([key]), terms[number].size - 1, binomial)[0]
        found[terms[number].root, tuple(members.tolist())] = float(value)
    return found
