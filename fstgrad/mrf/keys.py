"""Keys of random number streams; kernels compute each number from a key and a counter."""

import numpy as np

KEYS = 2**62


def new_key(rng: np.random.Generator) -> int:
    """Return a random key in [0, 2^62)."""
    return int(rng.integers(KEYS))


def new_keys(rng: np.random.Generator, number: int) -> list[int]:
    """Return `number` random keys in [0, 2^62), for independent streams."""
    keys: list[int] = rng.integers(KEYS, size=number).tolist()
    return keys
