"""Minimum-risk training on word lattices: exact gradients against 200 sampled paths.

The lattices are synthetic.  Each position has alternatives drawn from a vocabulary, which include
the right word at (at least) 80 percent of the positions.  Scores are those of bigrams, so that a
state is (position, previous word).  The loss is the word edit distance to the reference.  For the
exact method, the loss is composed with the lattice once ("seconds compile"), and the result serves
every gradient step ("seconds exact").  The sampled method draws paths exactly, computes their
losses by the same machine (prepared once, not timed), and uses the arc posteriors as a control
variate; its errors are those of one estimate, as the root mean square over seeds.

With a smaller vocabulary, the reference matches the hypothesis at other positions by chance, which
makes exact composition harder: "states / lattice" is the number of states of the composition per
state of the lattice.
"""

import numpy as np
from _harness import interleaved_medians, one_thread, run, seconds_of

one_thread()
SAMPLES = 200


def lattice_of(rng, length, alternatives, vocabulary, abc, right=0.8, spread=2.0):
    """Return (lattice, reference); the lattice has a state per alternative of each position."""
    import fstgrad as fg

    reference = rng.integers(vocabulary, size=length)
    source, target, label = [], [], []
    before = np.array([0])
    for t in range(length):
        words = rng.choice(vocabulary, size=alternatives, replace=False)
        if rng.random() < right and reference[t] not in words:
            words[rng.integers(alternatives)] = reference[t]
        after = 1 + t * alternatives + np.arange(alternatives)
        source.append(np.repeat(before, alternatives))
        target.append(np.tile(after, len(before)))
        label.append(np.tile(words, len(before)))
        before = after
    source, target, label = map(np.concatenate, (source, target, label))
    scores = spread * rng.normal(size=len(source))
    lattice = fg.Lattice.from_arcs(source, target, label, scores, abc, final=before.tolist())
    return lattice, reference


def rows(quick):
    import fstgrad as fg

    cases = [(100, 5, 10_000), (100, 5, 1_000), (100, 5, 200), (50, 10, 10_000), (200, 5, 10_000)]
    for length, alternatives, vocabulary in cases[:1] if quick else cases:
        rng = np.random.default_rng(length + vocabulary)
        abc = fg.Alphabet(f"w{i}" for i in range(vocabulary))
        loss = fg.EditDistance(abc, factored=True)
        lattice, reference = lattice_of(rng, length, alternatives, vocabulary, abc)
        lattice.compile(loss, reference)
        compile_seconds = np.median(
            [seconds_of(lambda: lattice.compile(loss, reference)) for _ in range(5)]  # noqa: B023
        )
        b = lattice.compile(loss, reference)
        against = loss.against(reference)

        def exact(lattice=lattice, b=b):
            return fg.risk(lattice.with_scores(lattice.scores), b)

        def sampled(seed=0, lattice=lattice, against=against):
            return fg.sampled_risk(
                lattice.with_scores(lattice.scores), None, against,
                samples=SAMPLES, rng=seed, proposal="plain",
            )  # fmt: skip

        seconds = interleaved_medians({"exact": exact, "sampled": sampled})
        value, gradient = exact()
        draws = [sampled(seed) for seed in range(20)]
        error = np.sqrt(np.mean([np.square(r.gradient - gradient).sum() for r in draws]))
        relative = float(error / np.linalg.norm(gradient))
        yield {
            "words": length,
            "alternatives": alternatives,
            "vocabulary": vocabulary,
            "arcs": lattice.num_arcs,
            "states / lattice": b.num_states / lattice.num_states,
            "seconds compile": float(compile_seconds),
            "seconds exact": seconds["exact"],
            "seconds sampled": seconds["sampled"],
            "times faster": seconds["sampled"] / seconds["exact"],
            "risk, words": value,
            "its error": float(np.sqrt(np.mean([(r.value - value) ** 2 for r in draws]))),
            "gradient error": relative,
            "paths for 1 %": int(SAMPLES * (relative / 0.01) ** 2),
        }


if __name__ == "__main__":
    run(f"Risk on word lattices: exact against {SAMPLES} sampled paths", rows)
