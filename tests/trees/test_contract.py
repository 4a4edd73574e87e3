"""Spanning trees meet the contract of all distributions."""

import numpy as np
import pytest

from tests.contract import DistributionContract
from tests.helpers.trees import enumerated, masked


class Shared(DistributionContract):
    takes_costs = True
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
    takes_costs = True

    def cases(self):
        rng = np.random.default_rng(6)
        return [enumerated(rng.normal(size=(6, 6)), single_root=single) for single in (True, False)]
