"""log Z and marginals after a change of the scores into one dependent, O(n^2)."""

import numpy as np

from fstgrad.core.checks import FloatArray
from fstgrad.core.uninitialized import empty
from fstgrad.trees import kernels
from fstgrad.trees.solution import Solution


def change_column(solution: Solution, dependent: int, scores: FloatArray) -> Solution | None:
    """Return the solution of scores (1, n+1, n+1) that differ in one column; None if unstable.

    solution : of a single item without padding.
    """
    if solution.scores is not solution.given or solution.delicate()[0]:
        return None
    tables = empty((2, *scores.shape))
    old, new = solution.scores[0], scores[0]
    ratio = kernels.incremental.change_column(
        old, new, dependent, solution.single_root, solution.gradient[0], tables[:, 0]
    )
    if np.isnan(ratio):
        return None
    off = np.arange(len(old)) != dependent
    step = np.log(ratio)
    moved = old[off, dependent].max() - new[off, dependent].max()
    tables[1].setflags(write=False)
    return solution._replace(
        scores=scores,
        given=scores,
        tables=tables,
        marginals=tables[1],
        log_partition=solution.log_partition + step,
        relative=solution.relative + step + moved,
    )
