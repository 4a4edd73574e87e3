"""The default training: settings for each objective, l2 for long targets, pairs that are held out.

The settings had the least word error among a few that were tried, with 1,000 training pairs each.
Likelihood was tuned on letters to phones of two languages, inflected forms of one language and
misspellings; the margin on letters to phones of one language and misspellings; the risk on letters
to phones of one language (docs/performance/learning.md).
"""

from collections.abc import Sequence, Sized
from typing import Any, Literal, NamedTuple

import numpy as np

from fstgrad.core.checks import real_number
from fstgrad.core.errors import InvalidInputError
from fstgrad.learning.objective import OBJECTIVE_KINDS, ObjectiveKind, PairObjective
from fstgrad.learning.outcomes import XY
from fstgrad.learning.templates import symbols_of

Objective = ObjectiveKind | Literal["crf-then-risk"]
OBJECTIVES: tuple[str, ...] = (*OBJECTIVE_KINDS, "crf-then-risk")
_FEWEST_PAIRS = 50  # with fewer pairs, none are held out
_USUAL_SYMBOLS = 10  # of a target; with more, the default of l2 is larger


class Recipe(NamedTuple):
    """Settings of Adam for one objective."""

    l2: float
    learning_rate: float
    epochs: int


DEFAULT_RECIPE = Recipe(3e-4, 0.1, 20)
RECIPES = dict.fromkeys(OBJECTIVES, DEFAULT_RECIPE) | {"risk": Recipe(1e-4, 0.03, 10)}
WEAKER_L2 = 0.3  # times l2: tried after likelihood, if validation pairs show which is better


def l2_for_targets(l2: float, Y: Sequence[Sized]) -> float:
    """Return the l2 for targets, given that for short ones.

    The objective of a pair is a sum over its positions, and the penalty grows with it: a few
    hundred lines of text have as many positions as thousands of words, but only few lines have a
    given rare feature.  So l2 is larger for targets of more than 10 symbols.
    """
    return l2 * max(1.0, sum(map(len, Y)) / (_USUAL_SYMBOLS * len(Y)))


def faster_cap(objective: PairObjective) -> str:
    """Return the settings that make an epoch faster, as a remedy; "" if a cap does not.

    Examples
    --------
    >>> import fstgrad as fg
    >>> faster_cap(PairObjective(fg.QGramCounts(abc := fg.Alphabet("ab"), 2), fg.Hamming(abc)))
    "method='capped' with cap=1 is faster: losses above 1 count as 1"
    """
    loss = objective.loss
    if objective.is_likelihood or loss is None or loss.semiring != "tropical":
        return ""
    given = objective.cap if isinstance(objective.cap, float) else None
    cap = given / 2 if given is not None and given < 2 else 1.0
    change = f"method='capped' with cap={cap:g}"
    if given is not None and objective.method in (None, "capped"):
        change = f"cap={cap:g} instead of {given:g}"
    elif objective.method == "auto":
        change += " instead of method='auto', whose limits are for a pair,"
    return f"{change} is faster: losses above {cap:g} count as {cap:g}"


def hold_out(
    pairs: list[XY], originals: list[tuple[Any, Any]], share: float, seed: int
) -> tuple[list[XY], tuple[list[Any], list[Any]] | None]:
    """Return the training pairs, and (X, Y) of those held out; None if there are fewer than 50.

    Pairs with the same symbols of x stay together, because new inputs are what a model is for: the
    errors on another form of a word that is in the training pairs would be too low.  If every such
    group is larger than the share, pairs are held out one by one.

    Parameters
    ----------
    pairs, originals : the pairs in the form that training needs, and in their original form
    share : of the pairs that is held out

    Raises
    ------
    InvalidInputError
        If the share is not in [0, 1).
    """
    share = real_number("held_out", share)
    if not 0 <= share < 1:
        raise InvalidInputError(f"held_out is {share}; give a share of the pairs, 0 <= share < 1")
    count = int(len(pairs) * share)
    if count == 0 or len(pairs) < _FEWEST_PAIRS:
        return pairs, None
    groups: dict[Any, list[int]] = {}
    for i, (x, _) in enumerate(pairs):
        groups.setdefault(symbols_of(x), []).append(i)
    groups_of_pairs, held_out = list(groups.values()), set[int]()
    if min(map(len, groups_of_pairs)) > count:
        groups_of_pairs = [[i] for i in range(len(pairs))]
    for k in np.random.default_rng([seed, len(pairs)]).permutation(len(groups_of_pairs)).tolist():
        if len(held_out) + len(groups_of_pairs[k]) <= count:
            held_out.update(groups_of_pairs[k])
    validation = [originals[i] for i in sorted(held_out)]
    training = [pair for i, pair in enumerate(pairs) if i not in held_out]
    return training, ([x for x, _ in validation], [y for _, y in validation])
