"""One suite for the contract of `fstgrad.core.distribution`; each family subclasses it.

A family gives small distributions together with all their structures, enumerated by an oracle of
its own as (structure, table of parts, log base measure).  Everything else follows from sums over
that list.
"""

import itertools

import numpy as np
import pytest

import fstgrad as fg

TOLERANCE = 1e-10


class Enumerated:
    """A distribution and the list of all its structures.

    tables: tuple of arrays for each structure (families with one table give a 1-tuple).
    """

    def __init__(self, distribution, structures, tables, log_base, scores, with_scores):
        self.distribution = distribution
        self.structures = structures
        self.tables = tables
        self.log_base = np.asarray(log_base, dtype=float)
        self.scores = scores
        self.with_scores = with_scores  # scores tuple -> the same family with those scores
        totals = np.array([self._total(table, scores) for table in tables]) + self.log_base
        self.log_partition = np.logaddexp.reduce(totals)
        self.log_probs = totals - self.log_partition
        self.probs = np.exp(self.log_probs)

    @staticmethod
    def _total(table, scores):
        return sum(float(s[t != 0] @ t[t != 0]) for t, s in zip(table, scores, strict=True))

    def mean(self):
        return tuple(
            sum(p * table[i] for p, table in zip(self.probs, self.tables, strict=True))
            for i in range(len(self.scores))
        )

    def values(self, r):
        """<r, t(y)> for every structure."""
        return np.array([self._total(table, r) for table in self.tables])


def as_tuple(table):
    """A family's table as a plain tuple of arrays."""
    return (table,) if isinstance(table, np.ndarray) else tuple(table)


class DistributionContract:
    """Subclass as TestX and define `cases()` -> list of Enumerated, and `same(a, b)` if needed.

    takes_costs : whether `fg.risk` and `fg.softmax_margin` take a distribution of this family and a
        table of costs.
    """

    takes_costs = False

    def cases(self):
        raise NotImplementedError

    def like(self, arrays, distribution):
        """The family's table type from a tuple of arrays."""
        return arrays[0] if len(arrays) == 1 else type(distribution.marginals())(*arrays)

    def key(self, structure):
        """A hashable form of a structure."""
        return tuple(np.asarray(structure).ravel().tolist())

    def test_log_partition(self):
        for case in self.cases():
            assert case.distribution.log_partition() == pytest.approx(
                case.log_partition, rel=TOLERANCE, abs=TOLERANCE
            )

    def test_marginals_are_means(self):
        for case in self.cases():
            for mine, mean in zip(
                as_tuple(case.distribution.marginals()), case.mean(), strict=True
            ):
                np.testing.assert_allclose(mine, mean, atol=TOLERANCE)

    def test_parts_and_log_prob(self):
        for case in self.cases():
            for structure, table, log_prob in zip(
                case.structures, case.tables, case.log_probs, strict=True
            ):
                for mine, part in zip(
                    as_tuple(case.distribution.parts(structure)), table, strict=True
                ):
                    np.testing.assert_array_equal(mine, part)
                assert case.distribution.log_prob(structure) == pytest.approx(
                    log_prob, rel=TOLERANCE, abs=TOLERANCE
                )

    def test_expectation_and_covariance(self):
        rng = np.random.default_rng(0)
        for case in self.cases():
            r, s = (tuple(rng.normal(size=x.shape) for x in case.scores) for _ in range(2))
            mine_r, mine_s = (self.like(x, case.distribution) for x in (r, s))
            values_r, values_s = case.values(r), case.values(s)
            mean_r, mean_s = case.probs @ values_r, case.probs @ values_s
            assert case.distribution.expectation(mine_r) == pytest.approx(mean_r, abs=TOLERANCE)
            covariance = case.probs @ ((values_r - mean_r) * (values_s - mean_s))
            assert case.distribution.covariance(mine_r, mine_s) == pytest.approx(
                covariance, abs=10 * TOLERANCE
            )

    def test_risk_is_an_expected_cost(self):
        rng = np.random.default_rng(4)
        for case in self.cases():
            costs = tuple(rng.normal(size=x.shape) for x in case.scores)
            table, totals = self.like(costs, case.distribution), case.values(costs)
            value, gradient = case.distribution.risk(table)
            mean = case.probs @ totals
            assert value == pytest.approx(mean, abs=TOLERANCE)
            for i, mine in enumerate(as_tuple(gradient)):
                parts = np.array([t[i] for t in case.tables])
                covariance = np.tensordot(case.probs * (totals - mean), parts, axes=1)
                np.testing.assert_allclose(mine, covariance, atol=10 * TOLERANCE)
            if self.takes_costs:
                again = fg.risk(case.distribution, table)
                assert again[0] == value
                for mine, theirs in zip(as_tuple(again[1]), as_tuple(gradient), strict=True):
                    np.testing.assert_array_equal(mine, theirs)

    def test_softmax_margin_with_costs(self):
        rng = np.random.default_rng(5)
        for case in self.cases():
            costs = tuple(rng.normal(size=x.shape) for x in case.scores)
            table = self.like(costs, case.distribution)
            place = int(np.argmax(case.probs))
            gold = case.structures[place]
            if not self.takes_costs:
                with pytest.raises(fg.NotSupportedError, match="nll"):
                    case.distribution.softmax_margin(gold, table)
                continue
            scores = case.log_probs + case.log_partition
            augmented = scores + case.values(costs)
            log_z = np.logaddexp.reduce(augmented)
            value, gradient = fg.softmax_margin(case.distribution, gold, table)
            assert value == pytest.approx(log_z - scores[place], abs=10 * TOLERANCE)
            probs = np.exp(augmented - log_z)
            for i, mine in enumerate(as_tuple(gradient)):
                parts = np.array([t[i] for t in case.tables])
                expected = np.tensordot(probs, parts, axes=1) - parts[place]
                np.testing.assert_allclose(mine, expected, atol=10 * TOLERANCE)
            plain = fg.softmax_margin(case.distribution, gold)
            assert plain[0] == pytest.approx(-case.log_probs[place], abs=10 * TOLERANCE)

    def test_hamming_costs_count_wrong_parts(self):
        if not self.takes_costs:
            return
        for case in self.cases():
            gold = case.structures[int(np.argmax(case.probs))]
            table = as_tuple(case.distribution.hamming_costs(gold))
            wrong = [
                (np.asarray(s) != gold).reshape(len(gold), -1).any(axis=1).sum()
                for s in case.structures
            ]
            np.testing.assert_array_equal(case.values(table), wrong)

    def test_entropy_cross_entropy_kl(self):
        rng = np.random.default_rng(1)
        for case in self.cases():
            entropy = -case.probs @ np.where(case.probs > 0, case.log_probs, 0)
            assert case.distribution.entropy() == pytest.approx(entropy, abs=10 * TOLERANCE)
            assert case.distribution.kl(case.distribution) == pytest.approx(0, abs=TOLERANCE)
            moved = tuple(x + 0.5 * rng.normal(size=x.shape) for x in case.scores)
            other = case.with_scores(moved)
            totals = np.array([case._total(t, moved) for t in case.tables]) + case.log_base
            log_q = totals - np.logaddexp.reduce(totals)
            support = case.probs > 0
            cross = -case.probs[support] @ log_q[support]
            assert case.distribution.cross_entropy(other) == pytest.approx(
                cross, abs=10 * TOLERANCE
            )
            kl = case.probs[support] @ (case.log_probs[support] - log_q[support])
            assert case.distribution.kl(other) == pytest.approx(kl, abs=10 * TOLERANCE)
            assert case.distribution.kl(other) >= 0

    def test_nll_gradient_by_central_differences(self):
        step = 1e-5
        for case in self.cases():
            gold = case.structures[int(np.argmax(case.probs))]
            value, gradient = case.distribution.nll(gold)
            assert value == pytest.approx(-case.log_probs.max(), abs=10 * TOLERANCE)
            for i, scores in enumerate(case.scores):
                finite = [j for j in np.ndindex(scores.shape) if np.isfinite(scores[j])]
                for j in finite[:: max(1, len(finite) // 12)]:
                    ends = []
                    for sign in (1, -1):
                        moved = [x.copy() for x in case.scores]
                        moved[i][j] += sign * step
                        ends.append(case.with_scores(tuple(moved)).nll(gold)[0])
                    difference = (ends[0] - ends[1]) / (2 * step)
                    assert as_tuple(gradient)[i][j] == pytest.approx(difference, abs=1e-7)

    def test_mode_has_the_highest_probability(self):
        for case in self.cases():
            log_prob = case.distribution.log_prob(case.distribution.mode())
            assert log_prob == pytest.approx(case.log_probs.max(), abs=10 * TOLERANCE)

    def test_samples_follow_the_probabilities(self):
        for case in self.cases():
            k = 4000
            draws = case.distribution.sample(k, np.random.default_rng(2))
            number = {self.key(y): i for i, y in enumerate(case.structures)}
            counts = np.zeros(len(case.structures))
            for draw in draws:
                counts[number[self.key(draw)]] += 1
            assert counts[case.probs == 0].sum() == 0
            # Pearson's statistic, cells of small expectation pooled; 5 sigma of its normal limit
            small = case.probs * k < 5
            observed = np.append(counts[~small], counts[small].sum())
            expected = np.append(case.probs[~small], case.probs[small].sum()) * k
            used = expected > 0
            chi2 = np.sum((observed - expected)[used] ** 2 / expected[used])
            degrees = max(1, used.sum() - 1)
            assert chi2 < degrees + 5 * np.sqrt(2 * degrees) + 10

    def test_samples_repeat_with_the_seed(self):
        for case in self.cases():
            first, second = (
                [self.key(y) for y in case.distribution.sample(5, 7)] for _ in range(2)
            )
            assert first == second

    def test_tables_are_not_views_of_inner_state(self):
        for case in self.cases():
            before = [x.copy() for x in as_tuple(case.distribution.marginals())]
            for table in as_tuple(case.distribution.marginals()):
                if table.flags.writeable:
                    table += 1
            for mine, old in zip(as_tuple(case.distribution.marginals()), before, strict=True):
                np.testing.assert_array_equal(mine, old)


def all_sequences(n, length):
    """All tuples of `length` ids below n."""
    return list(itertools.product(range(n), repeat=length))
