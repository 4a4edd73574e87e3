"""`ArcTable`: the checked scores of a batch of sentences, labels summed or maximised out."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.checks import BoolArray, FloatArray, IntArray
from fstgrad.core.distribution import Scalar
from fstgrad.core.errors import InfeasibleError, InvalidInputError
from fstgrad.core.infeasible import REMEDY
from fstgrad.trees import kernels, structures

if TYPE_CHECKING:
    from scipy.sparse import csr_array

# Vectors of the parts of one structure, see `ArcTable.vectors`.
Vectors: TypeAlias = "FloatArray | csr_array"


class Moments(Protocol):
    """The solution of a family on unlabeled tables (b, n+1, n+1)."""

    @property
    def marginals(self) -> FloatArray:
        """The probability of every arc."""

    def covariance_product(self, v: FloatArray) -> FloatArray:
        """Return Cov v; the table v may be overwritten."""


@dataclass
class ArcTable:
    """Scores (..., n+1, n+1) or (..., n+1, n+1, y), and their lengths flattened to (b,).

    flat : the scores with the batch as one axis, C-contiguous.
    full : the lengths with those of the items that are left out, whose `lengths` are 0.
    """

    scores: FloatArray
    flat: FloatArray
    lengths: IntArray
    batch_shape: tuple[int, ...]
    labeled: bool
    full: IntArray | None = None

    @classmethod
    def checked(
        cls, scores: npt.ArrayLike, lengths: npt.ArrayLike | None, labeled: bool | None
    ) -> "ArcTable":
        """Check shapes, and that every score within the lengths is a log-weight."""
        array = checks.score_array("scores", scores)
        shape = array.shape
        is_labeled = _is_labeled(shape) if labeled is None else checks.flag("labeled", labeled)
        axes = 3 if is_labeled else 2
        event, batch = shape[-axes:], shape[:-axes]
        if len(event) == axes and event[0] == event[1] > 0 and 0 in batch:
            raise InvalidInputError(f"scores has shape {shape}: an empty batch; give an item")
        if len(event) < axes or event[0] != event[1] or not array.size:
            kind = "(..., n+1, n+1, y)" if is_labeled else "(..., n+1, n+1)"
            raise InvalidInputError(
                f"scores has shape {shape}; the shape must be {kind} with n dependents "
                "and the root at index 0"
            )
        items = array[None] if not batch else array
        flat = np.ascontiguousarray(array.reshape(-1, *event) if len(batch) > 1 else items)
        flat = checks.writable(flat)
        if lengths is None:
            sizes = _full_lengths(len(flat), event[0] - 1)
        else:
            sizes = checks.index_array(
                "lengths", lengths, event[0], batch, what="numbers of words without the root"
            ).reshape(-1)
            if is_labeled:  # padding is not used, but its labels are summed
                real = np.arange(event[0]) <= sizes[:, None]
                flat = np.where((real[:, :, None] & real[:, None, :])[..., None], flat, 0.0)
        table = cls(array, flat, sizes, batch, is_labeled)
        bad = table._find_invalid_score()
        if bad >= 0:  # perhaps where no arc is
            is_arc = structures.real_arcs(np.array([event[0]]), event[0])[0]
            is_arc = is_arc[..., None] if is_labeled else is_arc
            array, flat = (np.where(is_arc, x, -np.inf) for x in (array, flat))
            table = cls(array, flat, sizes, batch, is_labeled)
            bad = table._find_invalid_score()
        if bad >= 0:
            where = [int(i) for i in np.unravel_index(bad, shape)]
            item = table.name(bad // (array.size // len(sizes)))
            raise checks.unusable_score(f"scores{where}{item}", array.flat[bad])
        if bad == -2:
            least = kernels.matrix_tree.LEAST
            array, flat = (np.where(x > -np.inf, np.maximum(x, least), x) for x in (array, flat))
            return cls(array, flat, sizes, batch, is_labeled)
        return table

    def _find_invalid_score(self) -> int:
        """Return the place of a score that is no log-weight, or less than 0, as the kernel does."""
        wide = self.flat.reshape(*self.flat.shape[:2], -1) if self.labeled else self.flat
        return int(kernels.matrix_tree.find_invalid_score(wide, self.lengths))

    @property
    def arcs(self) -> FloatArray:
        """Scores (b, n+1, n+1), labels summed out: log sum_y exp score, less `tops`."""
        return self._arcs_of_labels if self.labeled else self.flat

    @property
    def offset(self) -> FloatArray | float:
        """The amount (b,) by which the scores of every tree exceed those of `arcs`."""
        return self._tops.sum(axis=(1, 2, 3)) if self.labeled else 0.0

    @cached_property
    def _tops(self) -> FloatArray:
        """Each dependent's largest score, (b, 1, n+1, 1); 0 if it has none."""
        real = structures.real_arcs(self.lengths, self.flat.shape[1])[..., None]
        top = np.where(real, self.flat, -np.inf).max(axis=(1, 3), keepdims=True)
        return np.where(top > -np.inf, top, 0.0)

    @cached_property
    def _arcs_of_labels(self) -> FloatArray:
        scores = self.flat - self._tops
        top = scores.max(axis=-1)
        safe = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            total: FloatArray = np.log(np.exp(scores - safe[..., None]).sum(axis=-1))
        return safe + total

    @cached_property
    def label_logs(self) -> FloatArray:
        """The log-probability of each label given its arc, -inf on forbidden arcs."""
        if not self.labeled:
            return np.where(self.flat > -np.inf, 0.0, -np.inf)[..., None]
        arcs = self.arcs[..., None]
        return self.flat - self._tops - np.where(arcs > -np.inf, arcs, 0.0)

    @cached_property
    def shares(self) -> FloatArray:
        """The probability of each label given its arc, (b, n+1, n+1, y); 0 on forbidden arcs."""
        return np.exp(self.label_logs)

    @property
    def best_arcs(self) -> FloatArray:
        """Scores (b, n+1, n+1), labels maximised out."""
        return self.flat.max(axis=-1) if self.labeled else self.flat

    def name(self, item: int) -> str:
        """Return " of item 3" or " of item (1, 2)" for messages; "" if there is no batch."""
        if not self.batch_shape:
            return ""
        where = self.place(item)
        return f" of item {where[0] if len(where) == 1 else where}"

    @property
    def given_lengths(self) -> IntArray:
        """The lengths (b,), also of items that are left out."""
        return self.lengths if self.full is None else self.full

    @property
    def left_out(self) -> BoolArray:
        """Which items are left out, in the batch's shape."""
        return np.asarray(self.given_lengths != self.lengths).reshape(self.batch_shape)

    def without(self, items: BoolArray) -> "ArcTable":
        """Return the table in which some items (b,) are sentences without words."""
        kept = np.where(items, 0, self.lengths).reshape(self.batch_shape)
        return replace(ArcTable.checked(self.scores, kept, self.labeled), full=self.lengths)

    def explain(self, items: BoolArray, single_root: bool) -> dict[tuple[int, ...], str]:
        """Return why items (b,) have no tree, by their places in the batch."""
        reasons = {}
        for item in np.flatnonzero(items).tolist():
            inner = slice(self.lengths[item] + 1)
            arcs = self.arcs[item, inner, inner]
            why = structures.explain_infeasible(arcs, single_root=single_root)
            reasons[self.place(item)] = why
        return reasons

    def infeasible_error(self, reasons: Mapping[tuple[int, ...], str]) -> InfeasibleError:
        """Return the error of infeasible items, with the reasons by place."""
        if () in reasons:
            return InfeasibleError(reasons[()])
        named = {place[0] if len(place) == 1 else place: why for place, why in reasons.items()}
        return InfeasibleError.of_items(named, REMEDY)

    def zeroed(self, items: BoolArray, values: Scalar, *tables: FloatArray) -> tuple[Any, ...]:
        """Return values, and tables like the scores, with 0 for the items (..., batch) given."""
        if items.any():
            wide = items[(..., *(None,) * (3 if self.labeled else 2))]
            values = np.where(items, 0.0, values)
            tables = tuple(np.where(wide, 0.0, table) for table in tables)
        return (float(values) if np.ndim(values) == 0 else values), *tables

    def place(self, item: int) -> tuple[int, ...]:
        """Return the place of an item in the batch's shape."""
        return tuple(int(i) for i in np.unravel_index(item, self.batch_shape))

    def items(self) -> Iterator["ArcTable"]:
        """Yield each item as a table without padding."""
        for scores, n in zip(self.flat, self.lengths, strict=True):
            inner = np.ascontiguousarray(scores[: n + 1, : n + 1])
            yield ArcTable(inner, inner[None], np.array([n]), (), self.labeled)

    def marginals_like_scores(self, marginals: FloatArray) -> FloatArray:
        """Return arc probabilities (b, n+1, n+1) as a read-only table shaped like the scores."""
        if self.labeled:
            marginals = marginals[..., None] * self.shares
            marginals.setflags(write=False)
        return self.like_scores(marginals)

    def with_labels(self, reduced_costs: FloatArray) -> FloatArray:
        """Expand arc reduced_costs to the scores' shape: subtract the log share of each label."""
        if not self.labeled:
            return self.like_scores(reduced_costs)
        logs = self.label_logs
        with np.errstate(over="ignore", invalid="ignore"):  # scores near the lowest float64
            table = np.minimum(reduced_costs[..., None] - logs, np.finfo(np.float64).max)
        return self.like_scores(np.where(logs > -np.inf, table, 0.0))

    def covariance_product(self, v: FloatArray, moments: Moments) -> FloatArray:
        """Return Cov v for a C-contiguous table v like the scores; v may be overwritten.

        With labels, v is first averaged over them for each arc; a label then receives its share of
        the change of its arc plus the deviation of its own v from that average.
        """
        v = self.like_flat(v)
        if not self.labeled:
            return self.like_scores(moments.covariance_product(v))
        mean = (self.shares * v).sum(axis=-1)
        within_arc = moments.marginals[..., None] * (v - mean[..., None])
        change = moments.covariance_product(mean)[..., None]
        return self.like_scores(self.shares * (change + within_arc))

    def vectors(
        self,
        name: str,
        values: Any,
        checked: Callable[[str, npt.ArrayLike], FloatArray] = checks.real_array,
    ) -> Vectors:
        """Return checked vectors of the parts: the scores' shape + (R,), or sparse (n_parts, R)."""
        size, shape = self.scores.size, self.scores.shape
        if not hasattr(values, "tocsr"):
            array = checked(name, values)
            if array.ndim != len(shape) + 1 or array.shape[:-1] != shape:
                raise InvalidInputError(
                    f"{name} has shape {array.shape}; the shape must be that of the scores and one "
                    f"more axis, ({', '.join(map(str, shape))}, any)"
                )
            return array
        if self.batch_shape or values.shape[0] != size:
            raise InvalidInputError(
                f"{name} is sparse with {values.shape[0]} rows; give {size}, one for each part, "
                "and scores without a batch"
            )
        from scipy.sparse import csr_array

        rows = csr_array(values)  # whose data are numbers; those of other formats are lists
        checked(f"{name}.data", rows.data)
        return rows

    def checked_trees(
        self, trees: npt.ArrayLike, name: str, *, single_root: bool
    ) -> tuple[IntArray, IntArray | None]:
        """Return heads and labels (..., b, n) of trees (..., n) or (..., n, 2), checked."""
        array = checks.integers(name, trees)
        n = self.scores.shape[-2 if self.labeled else -1] - 1
        shape = (*self.batch_shape, n, 2) if self.labeled else (*self.batch_shape, n)
        if array.ndim < len(shape) or array.shape[array.ndim - len(shape) :] != shape:
            what = "a head and a label" if self.labeled else "a head"
            raise InvalidInputError(
                f"{name} has shape {array.shape}; the shape must end in {shape}: {what} for each "
                "dependent 1 .. n, in order"
            )
        lead = array.shape[: array.ndim - len(shape)]
        items = len(self.lengths)
        array = array.reshape(*lead, items, *shape[len(self.batch_shape) :])
        heads = array[..., 0] if self.labeled else array
        checked = structures.check_heads(
            heads, self.lengths, single_root=single_root, name=name, item=self.name
        )
        if not self.labeled:
            return checked, None
        real = checked >= 0
        size = self.scores.shape[-1]
        labels = np.where(real, array[..., 1], 0)
        checks.index_array(f"labels of {name}", labels, size)
        return checked, np.where(real, labels, structures.PADDING)

    def parts(self, heads: IntArray, labels: IntArray | None) -> FloatArray:
        """Return the 0/1 table (..., like the scores) of trees (..., b, n)."""
        table = structures.arc_table(heads, labels, (*heads.shape[:-2], *self.flat.shape))
        return table.reshape(heads.shape[:-2] + self.scores.shape)

    def forbidden(self, parts: FloatArray) -> BoolArray:
        """Return which trees, given as tables (..., like the scores), have a score of -inf."""
        cells = (parts > 0) & np.isneginf(self.scores)
        return np.asarray(cells.any(axis=(-3, -2, -1) if self.labeled else (-2, -1)))

    def finite(self, name: str, values: npt.ArrayLike) -> FloatArray:
        """Return checked finite values as a new table shaped like the scores."""
        array = checks.direction_array(name, values)
        shape = self.scores.shape
        try:
            return np.array(
                array if array.shape == shape else np.broadcast_to(array, shape), order="C"
            )
        except ValueError as error:
            raise InvalidInputError(
                f"{name} has shape {array.shape}; it must fit the scores, {shape}"
            ) from error

    def trees(self, heads: IntArray, labels: IntArray | None) -> IntArray:
        """Return trees in the public shape from heads and labels (..., b, n)."""
        if labels is None and not self.batch_shape and heads.ndim == 2:
            alone: IntArray = heads[0]
            return alone
        lead, n = heads.shape[:-2], heads.shape[-1]
        if labels is None:
            shape = (*lead, *self.batch_shape, n) if lead or self.batch_shape else n
            return heads.reshape(shape)
        return np.stack([heads, labels], axis=-1).reshape(*lead, *self.batch_shape, n, 2)

    def like_flat(self, table: FloatArray) -> FloatArray:
        """Return a table like the scores with the batch as one axis."""
        return table if len(self.batch_shape) == 1 else table.reshape(self.flat.shape)

    def like_scores(self, table: FloatArray) -> FloatArray:
        """Return a table (b, ...) with the batch axes restored."""
        if len(self.batch_shape) == 1:
            return table
        return table.reshape(self.batch_shape + table.shape[1:]) if self.batch_shape else table[0]


@cache
def _full_lengths(items: int, n: int) -> IntArray:
    """Return n for every item (b,): a cached array shared by all tables, never written to."""
    return np.full(items, n, dtype=np.int64)


def _is_labeled(shape: tuple[int, ...]) -> bool:
    """Recognize tables with a label axis by the two equal axes before it."""
    if len(shape) < 3 or shape[-2] != shape[-3]:
        return False
    if shape[-1] == shape[-2]:
        raise InvalidInputError(
            f"scores has shape {shape}, which may be a batch of unlabeled tables or a labeled one; "
            "say labeled=False or labeled=True"
        )
    return True


def times(scores: FloatArray, factor: float) -> FloatArray:
    """Return the scores times `factor` > 0; finite ones, even -1.8e308, stay finite."""
    with np.errstate(over="ignore"):
        product = scores * factor
    limit = np.finfo(np.float64).max
    return np.where(np.isfinite(scores), np.clip(product, -limit, limit), scores)


def exponential(logs: Scalar) -> Scalar:
    """Return exp(logs), +inf beyond float64."""
    with np.errstate(over="ignore"):
        return np.exp(logs)
