"""The default training: settings for each objective, and stages.

The settings had the least word error among a few that were tried, with 1,000 training pairs each.
Likelihood was tuned on letters to phones of two languages, inflected forms of one language and
misspellings; the margin on letters to phones of one language and misspellings; the risk on letters
to phones of one language (docs/performance/learning.md).
"""

from collections.abc import Sequence, Sized
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import flag, one_of, optional, positive_integer, real_number
from fstgrad.core.errors import InvalidInputError
from fstgrad.learning.objective import KINDS, Kind, PairObjective
from fstgrad.learning.sums import XY
from fstgrad.learning.templates import symbols_of
from fstgrad.learning.trainer import Settings

Objective = Kind | Literal["crf-then-risk"]
OBJECTIVES: tuple[str, ...] = (*KINDS, "crf-then-risk")
_OF_PAIRS = (
    "cap", "max_states", "method", "samples", "proposal", "seconds", "seed", "tolerance",
    "temperature", "epsilon",
)  # fmt: skip
_FEWEST = 50  # with fewer pairs, none are held out


class Recipe(NamedTuple):
    """Settings of Adam for one objective."""

    l2: float
    learning_rate: float
    epochs: int


RECIPES = {"risk": Recipe(1e-4, 0.03, 10)}
OTHERS = Recipe(3e-4, 0.1, 20)
WEAKER = 0.3  # times l2: tried after likelihood, if validation pairs show which is better


def settings_of(model: Any) -> Settings:
    """Return the settings of a model; the defaults depend on its objective."""
    optional("alphabet", model.alphabet, Alphabet, "an Alphabet")
    flag("warm_start", model.warm_start)
    recipe = RECIPES.get(one_of("objective", model.objective, OBJECTIVES), OTHERS)
    return Settings(
        model.optimizer,
        recipe.epochs if model.epochs is None else model.epochs,
        model.batch_size,
        recipe.learning_rate if model.learning_rate is None else model.learning_rate,
        recipe.l2 if model.l2 is None else model.l2,
        model.seed,
        model.patience,
    )


def objective_of(model: Any) -> PairObjective:
    """Return the objective of a model that already has its features."""
    return PairObjective(
        model.features_,
        model.loss_ if model.latent_ is None else model.latent_.loss(model.loss_),
        model.objective,
        **{name: getattr(model, name) for name in _OF_PAIRS},
    )


def for_pairs(model: Any, settings: Settings, Y: Sequence[Sized], *, validated: bool) -> Settings:
    """Return the settings for these targets, if l2 is not given.

    The objective of a pair is a sum over its positions, and the penalty grows with it: a few
    hundred lines of text have as many positions as thousands of words, but only few lines have a
    given rare feature.  So l2 is larger for targets of more than 10 symbols.  How much l2 helps
    depends on how regular the outputs are, so that validation pairs decide between two values.
    """
    if model.l2 is not None:
        return settings
    l2 = settings.l2 * max(1.0, sum(map(len, Y)) / (10 * len(Y)))
    tried = validated and model.objective == "crf" and model.optimizer != "lbfgs"
    tried = tried and model.patience is None
    return replace(settings, l2=l2, weaker_l2=WEAKER * l2 if tried else None)


def split(
    model: Any, pairs: list[XY], given: list[tuple[Any, Any]]
) -> tuple[list[XY], tuple[list[Any], list[Any]] | None]:
    """Return the training pairs, and (X, Y) of those held out; None if there are fewer than 50.

    Pairs with the same symbols of x stay together, because new inputs are what a model is for: the
    errors on another form of a word that is in the training pairs would be too low.  If every such
    group is larger than the share, pairs are held out one by one.

    Parameters
    ----------
    pairs, given : the pairs in the form that training needs, and in their original form

    Raises
    ------
    InvalidInputError
        If the share that is held out is not in [0, 1).
    """
    share = real_number("held_out", model.held_out)
    if not 0 <= share < 1:
        raise InvalidInputError(f"held_out is {share}; give a share of the pairs, 0 <= share < 1")
    count = int(len(pairs) * share)
    if count == 0 or len(pairs) < _FEWEST:
        return pairs, None
    seed = positive_integer("seed", model.seed, minimum=0)
    groups: dict[Any, list[int]] = {}
    for i, (x, _) in enumerate(pairs):
        groups.setdefault(symbols_of(x), []).append(i)
    rows, held = list(groups.values()), set[int]()
    if min(map(len, rows)) > count:
        rows = [[i] for i in range(len(pairs))]
    for k in np.random.default_rng([seed, len(pairs)]).permutation(len(rows)).tolist():
        if len(held) + len(rows[k]) <= count:
            held.update(rows[k])
    chosen = [given[i] for i in sorted(held)]
    kept = [pair for i, pair in enumerate(pairs) if i not in held]
    return kept, ([x for x, _ in chosen], [y for _, y in chosen])


def fit_in_turn(model: Any, X: Any, Y: Any, validation: Any, resume: bool) -> None:
    """Fit by likelihood, then by risk from these weights; restore the settings afterwards."""
    before = model.get_params()
    path = model.checkpoint
    try:
        model.set_params(objective="crf", checkpoint=None if path is None else f"{path}.crf")
        model._joins = False
        model.fit(X, Y, validation, resume=resume)
        model._joins, first = True, model.history_
        model.set_params(objective="risk", checkpoint=path, warm_start=True)
        model.fit(X, Y, validation, resume=resume)
        second = [replace(e, epoch=len(first) + e.epoch) for e in model.history_]
        model.history_ = [*first, *second]
    finally:
        model._joins = True
        model.set_params(**before)
