"""The sums over a corpus of many files, on the backend of joblib.

A task is one shard: the worker reads its file and sends back one gradient.  The reduction is in the
order of the shards, so that neither the number of workers nor the loss of one changes the result.
"""

from collections.abc import Sequence

import numpy as np

from fstgrad.checks import FloatArray
from fstgrad.errors import InvalidInputError
from fstgrad.io import Path, Tokens, read_pairs
from fstgrad.training.batch import Batch, Sums
from fstgrad.training.objective import PairObjective


def shard_sums(
    objective: PairObjective,
    w: FloatArray,
    shards: Sequence[Path],
    *,
    tokens_x: Tokens = "chars",
    tokens_y: Tokens = "chars",
) -> Sums:
    """Return the sums of value and gradient over the pairs of all shards.

    Inside `joblib.parallel_config(backend="dask")` the shards are worked on by a cluster of
    dask.distributed, and a shard of a lost worker is done again by another; without it, here.

    Parameters
    ----------
    shards : sequence of paths
        TSV files of x TAB y which every worker can read.
    tokens_x, tokens_y
        As in `fstgrad.io.read_pairs`.

    Raises
    ------
    InvalidInputError
        There are no shards.
    FstgradError
        From the first bad row or pair.
    """
    import joblib

    if not shards:
        raise InvalidInputError("shards is empty; give at least one file")
    tasks = (
        joblib.delayed(_one)(objective, w, path, tokens_x, tokens_y) for path in map(str, shards)
    )
    total = Sums(np.zeros(objective.features.shape))
    for sums in joblib.Parallel()(tasks):
        total.add(sums)
    return total


def _one(
    objective: PairObjective, w: FloatArray, path: str, tokens_x: Tokens, tokens_y: Tokens
) -> Sums:
    with Batch(objective) as batch:
        return batch.sums(w, read_pairs(path, tokens_x=tokens_x, tokens_y=tokens_y))
