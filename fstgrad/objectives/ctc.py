"""Objectives over alignments with blanks (CTC): the loss applies to the collapsed path."""

from typing import Any, Literal

import numpy as np

from fstgrad.core.checks import FloatArray, IntArray, instance, is_integer
from fstgrad.core.errors import InfeasibleError, InvalidInputError, NotSupportedError
from fstgrad.losses import CollapsedLoss, Loss
from fstgrad.losses.automata.automaton import LossAutomaton
from fstgrad.losses.automata.band import Band
from fstgrad.objectives.base import ALONE, Array, Arrays, Objective, Team
from fstgrad.objectives.predictions import PADDING
from fstgrad.objectives.sampling import Method, Options, Sampling, check_settings
from fstgrad.objectives.strings import (
    AUTO_STATES,
    IGNORED,
    Item,
    Kind,
    StringObjective,
    check_ids,
)
from fstgrad.strings.ctc import Alignment, GoldPaths
from fstgrad.strings.proposals import Compiled

CTCKind = Literal["nll", "softmax-margin", "risk"]
MOST_CELLS = 2**27  # of the rows of an automaton; method="auto" samples what could need more
SMALL = 2**15  # states of all frames of a batch; below this, threads cost more than they save


def check_labels(kind: CTCKind, loss: Loss | None, n: int, blank: Any) -> None:
    """Raise InvalidInputError unless the blank and the loss are over the n labels of the scores."""
    instance("loss", loss, Loss | None, "a Loss over the labels of the scores")
    if not is_integer(blank):
        raise InvalidInputError(f"blank is {blank!r}; give the id of the blank")
    if not 0 <= blank < n:
        raise InvalidInputError(f"blank is {blank}; the scores are for the labels 0 to {n - 1}")
    if kind != "nll" and (loss is None or len(loss.alphabet) != n):
        size = "no loss" if loss is None else f"a loss over {len(loss.alphabet)} symbols"
        raise InvalidInputError(
            f"scores are for {n} labels; got {size}: give a loss over the labels"
        )


def gold_paths(
    scores: Array, ids: IntArray, frames: IntArray, blank: int, team: Team = ALONE
) -> GoldPaths:
    """Return the paths of each item that collapse to its gold string.

    Parameters
    ----------
    scores : (B, T, n)
    ids : (B, L), padded with `IGNORED`
    frames : (B,)
    """
    targets = _targets(ids, scores.shape[-1], blank)
    slices = team.slices if ids.size * scores.shape[1] > SMALL else ALONE.slices
    return GoldPaths(scores, targets, frames, blank, slices)


def _targets(ids: IntArray, n: int, blank: int) -> list[IntArray]:
    """Return the gold strings; raise InvalidInputError if one has the blank or an unknown id."""
    targets = [row[row != IGNORED] for row in ids]
    for i, target in enumerate(targets):
        if (target == blank).any():
            raise InvalidInputError(f"gold[{i}] has the blank, {blank}; leave blanks out")
    check_ids(targets, n)
    return targets


def _frames(scores: Array, frames: IntArray | None = None) -> IntArray:
    """Return the numbers of frames, T for all items if None is given."""
    return np.full(len(scores), scores.shape[1]) if frames is None else frames


def ctc_options(
    cap: float | None, band: Band | None, method: Method | None, sampling: Sampling | None
) -> Options:
    """Return the options of a margin or a risk: "auto", but "exact" if a cap or a band is given."""
    if method is None:
        method = "auto" if cap is None and band is None else "exact"
    return Options(cap, band, method, sampling)


class CTCLikelihood(Objective):
    """-log p(gold) in nats of each item, summed over the paths that collapse to gold.

    Scores are one array (B, T, n), log-weights in nats.  Constants are gold (B, L) ids, padded with
    `IGNORED`, and optionally the numbers of frames (B,).

    Parameters
    ----------
    blank : int
        The id of the blank.
    """

    what = "ctc nll"

    def __init__(self, blank: int) -> None:
        self.blank = int(blank)

    def is_twice_differentiable(self) -> bool:
        """Return True."""
        return True

    def evaluate(
        self, scores: Arrays, constants: Arrays, team: Team = ALONE
    ) -> tuple[Array, Arrays]:
        """Return the values (B,) in nats and the gradient (B, T, n)."""
        values, gradient = self._paths(scores, constants, team).nll()
        return values, [gradient.astype(scores[0].dtype, copy=False)]

    def hessian_product(self, scores: Arrays, constants: Arrays, directions: Arrays) -> Arrays:
        """Return the Hessian of each item times the direction."""
        return [self._paths(scores, constants, ALONE).hessian_product(directions[0])]

    def align(self, scores: Arrays, constants: Arrays, team: Team = ALONE) -> Alignment:
        """Return the best path of each item; start and end are at the places of gold, (B, L)."""
        found, inside = self._paths(scores, constants, team).best(), constants[0] != IGNORED
        start, end = np.full((2, *inside.shape), PADDING)
        start[inside], end[inside] = found.start[found.start >= 0], found.end[found.end >= 0]
        return found._replace(start=start, end=end)

    def _paths(self, scores: Arrays, constants: Arrays, team: Team) -> GoldPaths:
        ids, *frames = constants
        return gold_paths(scores[0], ids, _frames(scores[0], *frames), self.blank, team)


class CTCObjective(StringObjective):
    """The softmax margin or the risk of each item, over all paths.

    Scores and constants as in `CTCLikelihood`.

    Parameters
    ----------
    kind : {"softmax-margin", "risk"}
    loss : Loss over the labels
    blank : int
        The id of the blank.
    options : the fields of `Options`
    """

    def __init__(self, kind: Kind, loss: Loss, blank: int, *options: Any) -> None:
        check_settings(kind, loss, Options(*options))
        hidden = [loss.alphabet.symbols[blank]]
        collapsed = CollapsedLoss(loss, loss.alphabet, collapse="ctc", blank=hidden)
        super().__init__(kind, collapsed, *options)
        self.blank, self.what = int(blank), f"ctc {self.what}"

    def evaluate(
        self, scores: Arrays, constants: Arrays, team: Team = ALONE
    ) -> tuple[Array, Arrays]:
        """Return the values (B,) in nats and the gradient (B, T, n).

        The margin is that of the best path of gold as the only gold path, plus the log of the share
        of this path among those of gold.
        """
        if self.kind == "risk":
            return super().evaluate(scores, constants, team)
        (table,), (ids, *given) = scores, constants
        frames = _frames(table, *given)
        paths = gold_paths(table, ids, frames, self.blank, team)
        rest, gradient = paths.nll(is_normalized=False)
        best = paths.best().labels
        shares = paths.relative_scores(best) + rest
        values, (total,) = super().evaluate(scores, [ids, frames, best, shares], team)
        inside = best >= 0
        i, t = np.nonzero(inside)
        gradient[i, t, best[inside]] += 1.0
        return values, [total + gradient.astype(total.dtype, copy=False)]

    def items(
        self,
        scores: Array,
        gold: IntArray,
        lengths: IntArray | None = None,
        best: IntArray | None = None,
        shares: FloatArray | None = None,
    ) -> list[Item]:
        """Return the items of a batch, as in `StringObjective`.

        Parameters
        ----------
        gold : (B, L) ids without blanks, padded with `IGNORED`
        lengths : (B,), optional
            The number of frames of each item.
        best, shares : (B, T) and (B,), optional
            The best path of gold, and the log of its share among those of gold.
        """
        best = np.zeros(scores.shape[:2], dtype=np.int64) if best is None else best
        shares = np.zeros(len(scores)) if shares is None else shares
        items: list[Item] = []
        sizes, targets = (
            _frames(scores, lengths).tolist(),
            _targets(gold, scores.shape[-1], self.blank),
        )

        def add(i: int) -> None:
            if sizes[i] == 0:
                raise InfeasibleError("scores has no frame")
            where = slice(0, sizes[i])
            automaton = self._automaton(targets[i], i, scores[i, where])
            items.append(Item(where, best[i, where], automaton, targets[i], float(shares[i])))

        ALONE.each(len(targets), add)
        return items

    def _automaton(self, target: IntArray, i: int, scores: Array) -> LossAutomaton | None:
        most = MOST_CELLS // AUTO_STATES  # a row of B has a cell for each state of M
        if self.options.method == "auto" and self._against(target).num_states > most:
            return None
        return super()._automaton(target, i, scores)

    def _compiler(self, target: IntArray, length: int) -> Compiled:
        """Return the function of `StringObjective`; without settings, only of exact automata.

        A band compares the places of labels with those of frames, which are far from each other,
        and the highest cap of a moderate automaton takes longer to find than samples to draw.
        """
        every, (cap, band, *_) = super()._compiler(target, length), self.options
        is_chosen = cap is not None or band is not None or self.sampling.proposal != "auto"

        def compiled(
            *, band: Band | None = None, cap: float | None = None, max_states: int
        ) -> LossAutomaton:
            if not is_chosen and (band is not None or cap is not None):
                raise NotSupportedError("give cap=, band= or a proposal")
            return every(band=band, cap=cap, max_states=max_states)

        return compiled

    def check(self, scores: Arrays, constants: Arrays) -> None:
        """Check gold, and compile the automata of its items."""
        if self.kind != "risk":
            ids, *frames = constants
            gold_paths(np.zeros_like(scores[0]), ids, _frames(scores[0], *frames), self.blank)
        super().check(scores, constants)

    def hessian_product(self, scores: Arrays, constants: Arrays, directions: Arrays) -> Arrays:
        """Return the Hessian of each margin times the direction."""
        (product,) = super().hessian_product(scores, constants, directions)
        ids, *frames = constants
        paths = gold_paths(scores[0], ids, _frames(scores[0], *frames), self.blank)
        return [product + paths.hessian_product(directions[0], is_normalized=False)]
