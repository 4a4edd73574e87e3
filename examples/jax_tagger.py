"""JAX: a tagger whose errors are edits
=====================================

A window tagger is trained by the softmax margin of the edit distance.  The training step is one
function under `jit`, and the gold tags, which depend on two words, are one of its arguments.

    python examples/jax_tagger.py
"""

import jax
import jax.numpy as jnp
import numpy as np

import fstgrad as fg
import fstgrad.jax as fgj

WORDS, TAGS, LENGTH, WIDTH = 30, 4, 10, 32
LOSS = fg.EditDistance(fg.Alphabet("abcd"))


def sentences(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return words and tags, both (count, LENGTH); tags after the end of a sentence are -100."""
    words = rng.integers(WORDS, size=(count, LENGTH))
    tags = words % TAGS
    tags[:, 1:] = (tags[:, 1:] + words[:, :-1] // 15) % TAGS
    tags[np.arange(LENGTH) >= rng.integers(5, LENGTH + 1, size=count)[:, None]] = -100
    return words, tags


def start(key: jax.Array) -> dict[str, jax.Array]:
    """Return initial weights: embeddings of two words, emissions, and scores of pairs of tags."""
    shapes = {"here": (WORDS, WIDTH), "before": (WORDS, WIDTH), "emit": (WIDTH, TAGS)}
    keys = zip(shapes, jax.random.split(key, len(shapes)), strict=True)
    weights = {name: 0.5 * jax.random.normal(own, shapes[name]) for name, own in keys}
    return weights | {"follow": jnp.zeros((TAGS + 1, TAGS))}


def scores(weights: dict[str, jax.Array], words: jax.Array) -> jax.Array:
    """Return the scores (count, LENGTH, TAGS + 1, TAGS) of pairs (previous tag, tag)."""
    before = jnp.pad(weights["before"][words[:, :-1]], ((0, 0), (1, 0), (0, 0)))
    hidden = jnp.tanh(weights["here"][words] + before)
    return (hidden @ weights["emit"])[:, :, None, :] + weights["follow"]


@jax.jit
def step(weights, words, tags):
    """Return the weights after a step of gradient descent, and the objective before it (nats)."""

    def objective(weights):
        return fgj.softmax_margin(scores(weights, words), tags, LOSS).mean()

    value, slope = jax.value_and_grad(objective)(weights)
    return jax.tree.map(lambda w, g: w - 0.2 * g, weights, slope), value


def share_right(weights, words, tags) -> float:
    """Return the share of correct tags in the most probable sequences."""
    tables = np.asarray(scores(weights, words), dtype=np.float64)
    right = np.array([fg.StringDistribution(table).mode() for table in tables]) == tags
    return float(right[tags >= 0].mean())


def main(train: int = 200, epochs: int = 30) -> list[float]:
    """Train; return the share of correct tags on new sentences before and after each epoch."""
    rng, weights = np.random.default_rng(0), start(jax.random.key(0))
    (words, tags), new = sentences(train, rng), sentences(100, rng)
    shares = [share_right(weights, *new)]
    for _ in range(epochs):
        for batch in np.split(rng.permutation(train), train // 20):
            weights, value = step(weights, words[batch], tags[batch])
        shares.append(share_right(weights, *new))
    print(f"softmax margin {value:.3f}, tags right on new sentences {shares[-1]:.3f}")
    return shares


if __name__ == "__main__":
    shares = main()
    panels = {"new sentences": {"tagger": (range(len(shares)), shares)}}
    figure = fg.plot.curves(panels, xlabel="epoch", ylabel="tags right", log=False)
