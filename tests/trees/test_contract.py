"""Spanning trees meet the contract of all distributions."""

import numpy as np
import pytest

import fstgrad as fg
from tests.contract import DistributionContract, Enumerated
from tests.oracles import trees as oracle


def enumerated(scores, *, single_root, family=fg.SpanningTrees, projective=False):
    structures, tables = oracle.tables(scores.shape, single_root=single_root, projective=projective)
    allowed = [np.isfinite(scores[t > 0]).all() for t in tables]
    structures = [s for s, keep in zip(structures, allowed, strict=True) if keep]
    tables = [(t,) for t, keep in zip(tables, allowed, strict=True) if keep]

    def make(table):
        return family(table[0], single_root=single_root, labeled=scores.ndim == 3)

    return Enumerated(make((scores,)), structures, tables, np.zeros(len(tables)), (scores,), make)


def masked(scores, *arcs):
    scores = scores.copy()
    for arc in arcs:
        scores[arc] = -np.inf
    return scores


class Shared(DistributionContract):
    single_root: bool

    def cases(self):
        rng = np.random.default_rng(5)
        plain = rng.normal(size=(5, 5))
        return [
            enumerated(table, single_root=self.single_root)
            for table in (
                rng.normal(size=(2, 2)),
                rng.normal(size=(3, 3)),
                2 * plain,
                masked(plain, (1, 2), (0, 3), (3, 1), (4, 3)),
                rng.normal(size=(3, 3, 2)),
                masked(rng.normal(size=(4, 4, 2)), (1, 2), (2, 3, 0), (0, 1, 1)),
            )
        ]


class TestSingleRoot(Shared):
    single_root = True


class TestManyRoots(Shared):
    single_root = False


@pytest.mark.slow
class TestFiveDependents(DistributionContract):
    def cases(self):
        rng = np.random.default_rng(6)
        return [enumerated(rng.normal(size=(6, 6)), single_root=single) for single in (True, False)]
