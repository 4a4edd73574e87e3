"""Sampled objectives: the time of 1,000 samples with their gradient, and the gain of controls.

A variance ratio is the variance of plain sampling divided by that of a technique, both with 1,000
samples and over fresh seeds; above 1, the technique is better.  There are ratios for the value and
for the gradient (summed over its entries).  fstgrad uses "control"; the other techniques were tried
and no_finite_loss_error.

    python benchmarks/sampling.py [--quick] [--json FILE]
"""

from collections.abc import Iterator

from _harness import Row, median_seconds, one_thread, run

one_thread()

import numpy as np  # noqa: E402

import fstgrad as fg  # noqa: E402
from fstgrad.strings.markov_chain import Chain  # noqa: E402

SAMPLES = 1000
AMINO = fg.Alphabet("ACDEFGHIKLMNPQRSTVWY")
LETTERS = fg.Alphabet("abcdefghij")


def cases():
    """Yield (name, scores, target, loss) twice per loss; the second scores favour the target."""
    rng = np.random.default_rng(1)
    for name, loss, length in (
        ("Smith-Waterman l=50", fg.SmithWaterman(AMINO), 50),
        ("edit l=12", fg.EditDistance(LETTERS), 12),
        ("edit l=30", fg.EditDistance(LETTERS), 30),
    ):
        n = len(loss.alphabet)
        target = rng.integers(n, size=length)
        for gain in (0.0, 3.0):
            scores = rng.normal(size=(length, n + 1, n))
            scores[np.arange(length), :, target] += gain
            yield name + (f", target +{gain:g}" if gain else ""), scores, target, loss


def uniforms(kind: str, rng: np.random.Generator, length: int) -> np.ndarray:
    """Return the random numbers (1000, l) in [0, 1) of one kind of sampling."""
    u = rng.random((SAMPLES, length))
    if kind == "antithetic":
        return np.concatenate([u[: SAMPLES // 2], np.nextafter(1 - u[: SAMPLES // 2], 0)])
    if kind == "first symbols stratified":
        u[:, 0] = (np.arange(SAMPLES) + u[:, 0]) / SAMPLES
    if kind == "all positions stratified":
        order = np.argsort(rng.random(u.shape), axis=0)
        u = (order + u) / SAMPLES
    return u


def plain(kind, seed, chain, against):
    """Return sampled F + score(gold) - log Z, its Q, the risk and its gradient."""
    strings = chain.draw(uniforms(kind, np.random.default_rng(seed), chain.length))
    losses, index = against.losses_of(strings), chain.flat_index(strings)
    largest = losses.max()
    weights = np.exp(losses - largest)
    centred = (losses - losses.mean()) / SAMPLES
    return (
        largest + np.log(weights.mean()),
        chain.counts(index, weights / weights.sum()),
        losses.mean(),
        chain.counts(index, centred),
    )


def controlled(seed, scores, target, against):
    margin = fg.sampled_softmax_margin(scores, target, against, samples=SAMPLES, rng=seed)
    risk = fg.sampled_risk(scores, None, against, samples=SAMPLES, rng=seed)
    return margin.value, margin.gradient, risk.value, risk.gradient


def rows(quick: bool) -> Iterator[Row]:
    for name, scores, target, loss in cases():
        against = loss.against(target)
        result = fg.sampled_softmax_margin(scores, target, against, samples=SAMPLES)
        yield {
            "case": name,
            "samples": SAMPLES,
            "effective": round(result.effective_samples),
            "standard error": result.standard_error,
            "seconds machine": median_seconds(lambda: loss.against(target)),  # noqa: B023
            "seconds softmax margin": median_seconds(
                lambda: fg.sampled_softmax_margin(scores, target, against)  # noqa: B023
            ),
            "seconds risk": median_seconds(lambda: fg.sampled_risk(scores, None, against)),  # noqa: B023
        }
    repeats = 10 if quick else 40
    for name, scores, target, loss in cases():
        chain, against = Chain(scores), loss.against(target)
        estimates = {
            kind: [plain(kind, seed, chain, against) for seed in range(repeats)]
            for kind in (
                "plain", "antithetic", "first symbols stratified", "all positions stratified",
            )
        }  # fmt: skip
        estimates["control"] = [
            controlled(seed, scores, target, against) for seed in range(repeats)
        ]
        base = [variance(estimates["plain"], i) for i in range(4)]
        for kind, results in estimates.items():
            ratios = [float(base[i] / variance(results, i)) for i in range(4)]
            yield {
                "case": name,
                "technique": kind,
                "ratio F": ratios[0],
                "ratio dF": ratios[1],
                "ratio risk": ratios[2],
                "ratio d risk": ratios[3],
            }


def variance(results, part: int) -> float:
    return float(np.var(np.array([result[part] for result in results]), axis=0).sum())


if __name__ == "__main__":
    run("Sampled objectives, 1,000 samples", rows)
