"""Keys of the streams of random numbers that kernels compute from a key and a counter."""

import numpy as np

KEYS = 2**62


def new_key(rng: np.random.Generator) -> int:
    """Return the key of one stream."""
    return int(rng.integers(KEYS))


def new_keys(rng: np.random.Generator, number: int) -> list[int]:
    """Return the keys of streams that are independent of one another."""
    keys: list[int] = rng.integers(KEYS, size=number).tolist()
    return keys
