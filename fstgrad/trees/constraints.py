"""Partial knowledge of a tree, as tables of the arcs (and labels) that it may use."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.axis_labels import check_mask, check_positions
from fstgrad.core.checks import BoolArray, FloatArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.sequences import members
from fstgrad.trees.arcs import ArcTable
from fstgrad.trees.structures import IGNORE_INDEX, PADDING, check_cycles


def constrained(table: ArcTable, required: Any, forbidden: Any) -> FloatArray:
    """Return the scores with -inf on forbidden arcs and on those that compete with required ones.

    required, forbidden : (k, 2) or (k, 3) arcs for all items, or a list of such arrays per item.
    """
    scores = table.scores.copy()
    for where, arc in _arcs(table, "forbidden", forbidden):
        scores[(*where, *arc)] = -np.inf
    for where, arc in _arcs(table, "required", required):
        required_score = scores[(*where, *arc)].copy()
        scores[
            (*where, slice(None), *((arc[1], slice(None)) if table.labeled else (arc[1],)))
        ] = -np.inf
        scores[(*where, *arc)] = required_score
    return scores


def allowed_by(table: ArcTable, name: str, partial: npt.ArrayLike) -> BoolArray:
    """Return the entries of the scores that partial trees allow, as a table like the scores.

    name : the name of the partial trees in errors.
    partial : bool, a table that fits the scores; or integer trees (..., n) or (..., n, 2) with
        labels, -1 or -100 for an unknown head or label.
    """
    array = _positions(name, partial)
    shape = table.scores.shape
    if array.dtype == np.bool_:
        try:
            return np.broadcast_to(array, shape)
        except ValueError as error:
            raise InvalidInputError(
                f"{name} has shape {array.shape}; it must fit the scores, {shape}"
            ) from error
    n = shape[len(table.batch_shape)] - 1
    wanted = (*table.batch_shape, n, 2) if table.labeled else (*table.batch_shape, n)
    array = checks.integers(name, array)
    array = np.where(array == IGNORE_INDEX, PADDING, array)
    array = checks.index_array(name, array, max(shape[-1], n + 1), lower=PADDING)
    if array.shape != wanted:
        raise InvalidInputError(
            f"{name} has shape {array.shape}; the shape must be {wanted}, -1 where nothing is "
            "known, or a bool table like the scores"
        )
    heads = array[..., 0] if table.labeled else array
    checks.index_array(f"heads of {name}", heads, n + 1, lower=PADDING)
    rows = heads.reshape(len(table.lengths), n)
    real = (np.arange(n) < table.lengths[:, None]) & (rows > 0)
    check_cycles(rows, real, name, lambda i: f" of item {i}" * bool(table.batch_shape))
    allowed = _fits(heads, n + 1)
    if not table.labeled:
        return allowed
    checks.index_array(f"labels of {name}", array[..., 1], shape[-1], lower=PADDING)
    labels = np.moveaxis(_fits(array[..., 1], shape[-1]), -2, -1)
    return allowed[..., None] & labels[..., None, :, :]


def _positions(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return an array of any dtype whose positions count, and that hides nothing."""
    check_positions(name, values)
    check_mask(name, values)
    try:
        return np.asarray(values)
    except Exception as error:  # a foreign __array__ may raise anything
        raise InvalidInputError(f"{name} is not an array: {error}") from error


def _fits(known: npt.NDArray[np.int64], size: int) -> BoolArray:
    """Return the values allowed for dependents, (..., size, n+1); all at -1 and for the root."""
    values = np.arange(size)[:, None]
    fits = (known[..., None, :] == PADDING) | (known[..., None, :] == values)
    everything = np.ones((*fits.shape[:-1], 1), dtype=bool)
    return np.concatenate([everything, fits], axis=-1)


def _arcs(table: ArcTable, name: str, arcs: Any) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Return (item index, arc) for all arcs."""
    arcs = arcs if isinstance(arcs, np.ndarray) else members(name, arcs)
    if _is_per_item(arcs):
        items = len(table.lengths)
        if len(arcs) != items or not table.batch_shape:
            raise InvalidInputError(
                f"{name} has arcs for {len(arcs)} items and the batch has {items}; give a list of "
                "(head, dependent) for each item in turn, or one for all"
            )
        places = list(np.ndindex(table.batch_shape))
        return [
            (place, arc)
            for place, item_arcs in zip(places, arcs, strict=True)
            for arc in _checked(table, name, item_arcs)
        ]
    return [((...,), arc) for arc in _checked(table, name, arcs)]


def _is_per_item(arcs: Any) -> bool:
    """Whether these are lists of arcs, one per item: three levels deep if there is any arc."""
    try:
        return any(np.ndim(arc) > 0 for item_arcs in arcs for arc in item_arcs)
    except Exception:  # not lists, or ragged ones: reported below
        return False


def _checked(table: ArcTable, name: str, arcs: npt.ArrayLike) -> list[tuple[int | slice, ...]]:
    array = _positions(name, arcs)
    if array.size == 0 and array.ndim:
        return []
    n = table.scores.shape[len(table.batch_shape)] - 1
    width = 3 if table.labeled and array.shape[-1:] == (3,) else 2
    array = checks.index_array(name, array, max(n + 1, table.scores.shape[-1]), (None, width))
    for arc in array.tolist():
        fits = arc[0] <= n and 1 <= arc[1] <= n and arc[0] != arc[1]
        if not fits or (width == 3 and arc[2] >= table.scores.shape[-1]):
            raise InvalidInputError(
                f"{name} has the arc {tuple(arc)}; give (head, dependent) with head in 0 .. {n} "
                f"and a different dependent in 1 .. {n}, and a label if the table has labels"
            )
    all_labels = (slice(None),) if table.labeled and width == 2 else ()
    return [(*arc, *all_labels) for arc in array.tolist()]
