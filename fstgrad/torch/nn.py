"""Layers with parameters: the conditional random field, a drop-in for that of pytorch-crf.

Layers have the names and the `state_dict` of the packages that they replace, so that one import
line changes and old checkpoints load.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from fstgrad.core.axis_labels import check_positions
from fstgrad.core.checks import BoolArray, flag, index_array, one_of, optional, positive_integer
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.infeasible import Infeasible
from fstgrad.core.tag_schemes import TagScheme
from fstgrad.losses import Loss
from fstgrad.torch import arguments, crf
from fstgrad.torch.arrays import computes_on_device
from fstgrad.torch.operators import reduced
from fstgrad.torch.state_names import check_names, write_names
from fstgrad.torch.strings import IGNORE_INDEX
from fstgrad.torch.transforms import knows_values

__all__ = ["CRF"]

Reduction = Literal["none", "sum", "mean", "token_mean"]
REDUCTIONS: tuple[Reduction, ...] = ("none", "sum", "mean", "token_mean")
Allowed = npt.ArrayLike | Sequence[Sequence[int]] | Sequence[int]


class CRF(torch.nn.Module):
    """A linear-chain conditional random field whose transitions are parameters.

    This layer has the constructor, the parameters, `forward` and `decode` of `torchcrf.CRF`
    (pytorch-crf 0.7).  `fstgrad.torch.CRF` is the distribution for given scores, without
    parameters: the layer makes one for each batch, and `distribution` returns it.

    Parameters
    ----------
    num_tags : int
        The number n of tags.
    batch_first : bool
        Whether tensors are (B, T, ...) instead of (T, B, ...).
    scheme : fg.TagScheme, optional
        Allow the transitions, starts and ends of BIO, BIOES, BILOU or BMES tags alone.
    allowed : (n, n) bool, or list of pairs of tags, optional
        The transitions from tag x to tag y that are allowed: True at [x, y], or a pair (x, y).
    allowed_start, allowed_end : (n,) bool, or list of tags, optional
        The tags with which a sequence may begin, or end.

    Attributes
    ----------
    start_transitions, end_transitions : Parameter (n,)
    transitions : Parameter (n, n)
        The log-weight in nats of tag y after tag x, at [x, y].  What is not allowed has -inf
        instead, in training and in decoding; the parameters keep their values, and the
        `state_dict` does not know of it.  With a scheme, it knows the names of the tags, and a
        layer whose scheme has them in another order refuses it.

    Notes
    -----
    A mask is True (or 1) at the positions that belong to a sequence; they may be anywhere, and a
    sequence is what is left.  Positions with the tag -100 are left out too, where tags are given.
    Ties of the best sequences go to smaller tags.  Where pytorch-crf returns a log-likelihood, this
    layer does: negate it to train.  `entropy`, `kl`, `risk` and `softmax_margin` are to be
    minimized, or added, as they are.  All are exact and once differentiable, and have the
    reductions of `forward`: "none" (B,), "sum", "mean" over the sequences, or "token_mean", the sum
    divided by the number of positions.

    Examples
    --------
    >>> import torch, fstgrad.torch as fgt
    >>> layer = fgt.nn.CRF(3, batch_first=True)
    >>> emissions = torch.tensor([[[5.0, 0.0, 0.0], [0.0, 0.0, 5.0]]], requires_grad=True)
    >>> log_likelihood = layer(emissions, torch.tensor([[0, 2]]), reduction="mean")
    >>> (-log_likelihood).backward()
    >>> layer.decode(emissions), sorted(layer.state_dict())
    ([[0, 2]], ['end_transitions', 'start_transitions', 'transitions'])
    """

    _not_allowed: torch.Tensor | None
    _not_allowed_start: torch.Tensor | None
    _not_allowed_end: torch.Tensor | None
    _tags: tuple[str, ...] | None = None  # those of the scheme

    def __init__(
        self,
        num_tags: int,
        batch_first: bool = False,
        *,
        scheme: TagScheme | None = None,
        allowed: Allowed | None = None,
        allowed_start: Allowed | None = None,
        allowed_end: Allowed | None = None,
    ) -> None:
        super().__init__()
        self.num_tags = n = positive_integer("num_tags", num_tags)
        self.batch_first = flag("batch_first", batch_first)
        optional("scheme", scheme, TagScheme, "an fg.TagScheme")
        if scheme is not None and len(scheme.alphabet) != n:
            raise InvalidInputError(f"scheme has {len(scheme.alphabet)} tags; num_tags is {n}")
        for name, shape, given in (
            ("allowed", (n, n), allowed),
            ("allowed_start", (n,), allowed_start),
            ("allowed_end", (n,), allowed_end),
        ):
            table = None if given is None else _table(name, given, shape)
            if scheme is not None:
                table = getattr(scheme, name) & (True if table is None else table)
            # no buffer: transformers leaves those that a checkpoint lacks uninitialized
            setattr(self, f"_not_{name}", None if table is None else torch.from_numpy(~table))
        self._tags = None if scheme is None else tuple(scheme.alphabet)
        self.start_transitions = torch.nn.Parameter(torch.empty(n))
        self.end_transitions = torch.nn.Parameter(torch.empty(n))
        self.transitions = torch.nn.Parameter(torch.empty(n, n))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all parameters from the uniform distribution between -0.1 and 0.1."""
        for parameter in (self.start_transitions, self.end_transitions, self.transitions):
            torch.nn.init.uniform_(parameter, -0.1, 0.1)

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._tags is not None:
            write_names(destination, prefix, self._tags)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: dict[str, Any], *rest: Any
    ) -> None:
        if self._tags is not None:
            check_names(f"{prefix}transitions", local_metadata, self._tags, "tags")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    def extra_repr(self) -> str:
        """Show the number of tags."""
        return f"num_tags={self.num_tags}"

    def distribution(self, emissions: torch.Tensor, mask: torch.Tensor | None = None) -> crf.CRF:
        """Return the distribution over the tag sequences of a batch, which has the batch first.

        emissions : (T, B, n), or (B, T, n) with batch_first
        mask : (T, B) or (B, T), bool or integers 0 and 1, optional
        """
        emissions, mask = self._checked(emissions, mask)
        return self._distribution(emissions, mask)

    def forward(
        self,
        emissions: torch.Tensor,
        tags: torch.Tensor,
        mask: torch.Tensor | None = None,
        reduction: Reduction = "sum",
        *,
        infeasible: Infeasible = "raise",
    ) -> torch.Tensor:
        """Return the log-likelihood of tags in nats.

        emissions, mask : as in `distribution`
        tags : (T, B), or (B, T) with batch_first, integers; -100 leaves a position out
        reduction : {"none", "sum", "mean", "token_mean"}

        infeasible : {"raise", "zero"}
            "zero": sequences without a position, or whose tags are not allowed, add nothing.
        """
        of_batch, gold = self._given(emissions, tags, mask)
        nll = of_batch.nll(gold, reduction="none", infeasible=infeasible)
        return _reduced(-nll, of_batch, reduction)

    def softmax_margin(
        self,
        emissions: torch.Tensor,
        tags: torch.Tensor,
        loss: Loss | torch.Tensor,
        mask: torch.Tensor | None = None,
        reduction: Reduction = "sum",
        *,
        infeasible: Infeasible = "raise",
    ) -> torch.Tensor:
        """Return log sum_y exp(L(y, tags) + score(y) - score(tags)) in nats, an upper bound of L.

        loss : (n, n) costs in nats [gold, predicted], or a Loss over the n tags
            `fg.SpanHamming` counts spans (entities).  F1 of entities has no exact gradient.

        Other parameters as in `forward`; see `fstgrad.torch.CRF.softmax_margin`.
        """
        of_batch, gold = self._given(emissions, tags, mask)
        values = of_batch.softmax_margin(gold, loss, reduction="none", infeasible=infeasible)
        return _reduced(values, of_batch, reduction)

    def risk(
        self,
        emissions: torch.Tensor,
        tags: torch.Tensor,
        loss: Loss | torch.Tensor,
        mask: torch.Tensor | None = None,
        reduction: Reduction = "sum",
        *,
        infeasible: Infeasible = "raise",
    ) -> torch.Tensor:
        """Return the expected loss E[L(y, tags)] in nats; parameters as in `softmax_margin`."""
        of_batch, gold = self._given(emissions, tags, mask)
        values = of_batch.risk(gold, loss, reduction="none", infeasible=infeasible)
        return _reduced(values, of_batch, reduction)

    def entropy(
        self,
        emissions: torch.Tensor,
        mask: torch.Tensor | None = None,
        reduction: Reduction = "sum",
    ) -> torch.Tensor:
        """Return the entropy of the tag sequences in nats; parameters as in `forward`."""
        of_batch = self.distribution(emissions, mask)
        return _reduced(of_batch.entropy(), of_batch, reduction)

    def kl(
        self,
        emissions: torch.Tensor,
        other: crf.CRF,
        mask: torch.Tensor | None = None,
        reduction: Reduction = "sum",
    ) -> torch.Tensor:
        """Return the divergence E[log p(y) - log q(y)] in nats from a distribution q.

        other : fstgrad.torch.CRF
            q, such as `teacher.distribution(emissions, mask)` with the same mask.

        Other parameters as in `forward`; see `fstgrad.torch.CRF.kl`.
        """
        of_batch = self.distribution(emissions, mask)
        return _reduced(of_batch.kl(other), of_batch, reduction)

    def marginals(self, emissions: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Return p(y_t = tag), like the emissions; 0 where the mask is False; no gradient."""
        table = self.distribution(emissions, mask).marginals()
        return table if self.batch_first else table.transpose(0, 1)

    def decode(self, emissions: torch.Tensor, mask: torch.Tensor | None = None) -> list[list[int]]:
        """Return the best tags of each sequence, one for each position inside the mask."""
        return _lists(self.distribution(emissions, mask).decode())

    def nbest(
        self, emissions: torch.Tensor, k: int, mask: torch.Tensor | None = None
    ) -> list[list[tuple[list[int], float]]]:
        """Return up to k pairs (tags, log p) of each sequence, best first; log p is in nats."""
        tags, log_probs = self.distribution(emissions, mask).nbest(k)
        ranked = zip(tags, log_probs.tolist(), strict=True)
        return [
            [pair for pair in zip(_lists(own), values, strict=True) if pair[0]]
            for own, values in ranked
        ]

    def _given(
        self, emissions: torch.Tensor, tags: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[crf.CRF, torch.Tensor]:
        """Return the distribution over positions without -100, and the tags (B, T)."""
        emissions, mask = self._checked(emissions, mask)
        gold = self._turned("tags", arguments.integers("tags", tags), emissions).to(
            emissions.device
        )
        known = gold != IGNORE_INDEX
        mask = known if mask is None else mask & known
        if knows_values(gold) and not computes_on_device(emissions):
            crf.check_tags("tags", gold, mask, self.num_tags)
        return self._distribution(emissions, mask), gold

    def _checked(
        self, emissions: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return emissions (B, T, n) and the mask (B, T) as bool."""
        axes = "(B, T, n)" if self.batch_first else "(T, B, n)"
        if arguments.floating("emissions", emissions).ndim != 3:
            raise InvalidInputError(
                f"emissions has the shape {tuple(emissions.shape)}; give {axes}"
            )
        if emissions.shape[2] != self.num_tags:
            raise InvalidInputError(
                f"emissions has the shape {tuple(emissions.shape)}; give {axes} with "
                f"n = num_tags = {self.num_tags}"
            )
        if not self.batch_first:
            emissions = emissions.transpose(0, 1)
        if mask is None:
            return emissions, None
        if arguments.tensor("mask", mask).dtype != torch.bool:
            mask = _truth(arguments.integers("mask", mask, "bool, or integers 0 and 1"))
        return emissions, self._turned("mask", mask, emissions)

    def _turned(self, name: str, given: torch.Tensor, emissions: torch.Tensor) -> torch.Tensor:
        """Return a tensor (B, T) with the batch first, like the emissions."""
        shape = tuple(emissions.shape[:2])
        arguments.shaped(name, given, shape if self.batch_first else shape[::-1])
        return given if self.batch_first else given.transpose(0, 1)

    def _distribution(self, emissions: torch.Tensor, mask: torch.Tensor | None) -> crf.CRF:
        return crf.CRF(
            emissions,
            _forbidden(self.transitions, self._not_allowed),
            mask,
            start=_forbidden(self.start_transitions, self._not_allowed_start),
            end=_forbidden(self.end_transitions, self._not_allowed_end),
        )


def _truth(mask: torch.Tensor) -> torch.Tensor:
    """Return a mask of integers 0 and 1 as bool."""
    inside = mask == 1
    is_known = not (torch.compiler.is_compiling() or computes_on_device(mask))
    if is_known and not torch.equal(inside, mask != 0):
        raise InvalidInputError("mask holds other integers than 0 and 1; give bool")
    return inside


def _forbidden(scores: torch.Tensor, blocked: torch.Tensor | None) -> torch.Tensor:
    """Return the scores, -inf where they are blocked."""
    if blocked is None:
        return scores
    return scores.masked_fill(blocked.to(scores.device, non_blocking=True), -torch.inf)


def _table(name: str, given: Allowed, shape: tuple[int, ...]) -> BoolArray:
    """Return what is allowed as bool of a shape, from such a table or a list of tags or pairs.

    Arrays of integers are refused: a table of 0 and 1 for two tags would be two pairs.
    """
    check_positions(name, given)
    array = given.cpu().numpy() if isinstance(given, torch.Tensor) else np.asarray(given)
    if array.dtype == bool or not isinstance(given, list | tuple):
        if array.dtype != bool:
            kind = "tags" if len(shape) == 1 else "pairs of tags"
            raise InvalidInputError(
                f"{name} has the dtype {array.dtype}; give bool {shape}, or a list of {kind}"
            )
        if array.shape != shape:
            raise InvalidInputError(f"{name} has the shape {array.shape}; give {shape}")
        return array
    table = np.zeros(shape, dtype=bool)
    places = index_array(name, array, shape[0], (None, 2)[: len(shape)])
    table[tuple(places.T) if len(shape) == 2 else places] = True
    return table


def _reduced(values: torch.Tensor, of_batch: crf.CRF, reduction: str) -> torch.Tensor:
    """Return the values (B,) of a batch, reduced."""
    if one_of("reduction", reduction, REDUCTIONS) != "token_mean":
        return reduced(values, reduction)
    items, length, _ = of_batch.emissions.shape
    positions = items * length if of_batch.mask is None else of_batch.mask.sum()
    return reduced(values, "mean") * items / positions


def _lists(tags: torch.Tensor) -> list[list[int]]:
    """Return the tags (N, T) as lists, without the positions left out."""
    return [[tag for tag in row if tag != IGNORE_INDEX] for row in tags.tolist()]
