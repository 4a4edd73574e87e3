"""Labels of the axes of tables made by other libraries, which need not be installed.

pandas has an index and columns, polars columns, xarray coordinates, Biopython an alphabet.  Numbers
0, 1, ... in order and the default names of polars are positions, no labels.

- `axis_labels` : the labels of each axis.
- `column_labels`, `column_names` : the labels of the columns, and these as texts.
- `over_symbols` : a table of pairs of symbols, in the order of an alphabet.
- `EPSILONS`, `are_greek`, `check_no_epsilon` : the names of the empty string; whether the letter
  epsilon is a symbol; raise an error if a label is a name of the empty string.
- `check_columns` : raise an error if a table has other columns than the fit, or another order.
- `check_names` : raise an error if a vector has the labels of other columns, or another order.
- `check_positions` : raise an error if positions count, but there are labels, or none.
- `check_mask` : raise an error if an array hides entries.
- `check_same_rows` : raise an error if things to be paired have different labels.
"""

from collections.abc import Container, Iterable, Mapping, Sequence, Set
from typing import Any, TypeGuard

import numpy as np

from fstgrad.core.errors import AlphabetError, InvalidInputError

Labels = list[Any] | None
_SHOWN = 12  # most labels in an error
_MOST_AXES = 64  # of an array of numpy
_ROWS = (list, tuple, np.ndarray)  # of a table as a list
# the names of the empty string in files of OpenFst, foma, HFST and pyfoma; pyfoma writes nothing
EPSILONS = ("", "<eps>", "<epsilon>", "@0@", "@_EPSILON_SYMBOL_@")
_LETTER = "\u03b5"  # another name of it, unless it is one of several letters of Greek
_MISSING = ("nan", "None", "NaT", "<NA>")
# where the costs of insertions and deletions belong
GAPS = "insert_cost= and delete_cost=, or rules such as c -> 0 0.2 (fg.RuleLoss, --loss x.rules)"
_ONCE = "label each symbol of the alphabet once, with a str"


def axis_labels(values: Any) -> tuple[Labels, ...]:
    """Return the labels of each axis, None for an axis without labels; () for a plain array."""
    if type(values) in (np.ndarray, list, tuple):
        return ()
    try:
        found = _found(values)
    except Exception:  # a foreign attribute may raise anything
        return ()
    return tuple(None if own is None or _is_plain(own) else own for own in found)


def column_labels(table: Any) -> Labels:
    """Return the labels of the columns of a table, 0, 1, ... too; None without columns.

    The columns of an array with labels are its last axis.  A label NaN is None, which equals
    itself.
    """
    try:
        if hasattr(table, "dims") and hasattr(table, "coords"):
            last = table.dims[-1]
            return table.coords[last].to_numpy().tolist() if last in table.coords else None
        labels = _columns(table)
        return labels and [label if label == label else None for label in labels]
    except Exception:  # a foreign attribute may raise anything
        return None


def column_names(table: Any) -> list[str] | None:
    """Return the labels of the columns of a table as texts.

    None if these are positions, if one is missing, or if two are alike.
    """
    labels = column_labels(table)
    if not labels or _is_plain(labels) or any(label is None for label in labels):
        return None
    names = [str(label) for label in labels]
    return names if len(set(names)) == len(names) else None


def check_columns(name: str, table: Any, names: Sequence[str] | None) -> None:
    """Raise InvalidInputError if the columns of a table are not `names`, in their order.

    names : those of the fit; None matches any columns.  The names x0, x1, ... stand for none, and
    labels that are no texts may be positions: both are compared only with the same ones in another
    order, and such labels with texts that some of them equal.
    """
    labels = column_labels(table)
    if not labels or names is None:
        return
    own, known = [str(label) for label in labels], list(names)
    is_text = all(isinstance(label, str) for label in labels)
    if own == known:
        return
    if set(own) != set(known):
        if _is_plain(labels) or known == [f"x{i}" for i in range(len(known))]:
            return
        if not is_text and not set(own) & set(known):
            return
    remedy = f": {name}[{known}]" if is_text and hasattr(table, "columns") else ""
    raise InvalidInputError(
        f"{name} has the columns {own}, and that of the fit {known}; give them in this order"
        + remedy
    )


def _columns(values: Any) -> Labels:
    columns = getattr(values, "column_names", getattr(values, "columns", None))
    return None if columns is None else list(columns)


def _found(values: Any) -> tuple[Labels, ...]:
    columns = _columns(values)
    if columns is not None:
        return _index(values), columns
    if hasattr(values, "dims") and hasattr(values, "coords"):
        named = values.coords
        return tuple(list(named[d].to_numpy()) if d in named else None for d in values.dims)
    if isinstance(values, np.ndarray) and hasattr(values, "alphabet"):
        return (list(values.alphabet),) * values.ndim
    return (_index(values),)


def _index(values: Any) -> Labels:
    index = getattr(values, "index", None)
    return None if index is None or callable(index) else list(index)


def _is_plain(labels: list[Any]) -> bool:
    return labels == list(range(len(labels))) or labels == [
        f"column_{i}" for i in range(len(labels))
    ]


def check_no_epsilon(
    name: str, labels: Sequence[Any], symbols: Sequence[str], gaps: str = GAPS
) -> None:
    """Raise AlphabetError if a symbol of pairs is the empty string, which no pair has.

    A missing label is one, too, and the letter epsilon unless it or others of Greek are symbols.

    symbols : those of the alphabet; gaps : where the costs of insertions and deletions belong
    """
    texts = [s if isinstance(s, str) else str(s) * (str(s) not in _MISSING) for s in labels]
    for label, text in zip(labels, texts, strict=True):
        if text in EPSILONS or (text == _LETTER and not are_greek((*texts, *symbols), symbols)):
            raise AlphabetError(
                f"{name} has {label!r}, which stands for no symbol, and each of its costs is of "
                f"two symbols; leave it out, and give {gaps}"
            )


def are_greek(texts: Iterable[str], symbols: Container[str]) -> bool:
    """Return whether the letter epsilon is a symbol, or one of several Greek letters."""
    letters = {text for text in texts if "\u03b1" <= text < "\u03ca"}  # alpha to omega
    return _LETTER in symbols or letters != {_LETTER}


def over_symbols(name: str, table: Any, symbols: Sequence[str], gaps: str = GAPS) -> Any:
    """Return a table whose rows and columns are pairs of symbols, in the order of `symbols`.

    A table without labels is returned unchanged; one with labels may have more symbols.

    gaps : where the costs of insertions and deletions belong, for an error

    Raises
    ------
    AlphabetError
        A symbol has no label or several, a label is the empty string, or the labels of one axis
        only are in another order.
    """
    order = list(symbols)
    labels = axis_labels(table) or _labels_of_rows(name, table)
    given = [own for own in labels if own is not None]
    if not given:
        # an index 0, 1, ... may be the digits, and then it is in another order
        digits = [str(i) for i in range(len(order))]
        if _rows(table) is not None and order != digits and set(order) == set(digits):
            raise _disagreeing(name, [digits] * 2, order, "label rows and columns with str")
        return table
    for names in given:
        check_no_epsilon(name, names, order, gaps)
    if len(given) < len(labels) and any(own != order for own in given):
        raise _disagreeing(name, labels, order, "label rows and columns alike")
    array = np.asarray(table)
    for axis, own in enumerate(labels):
        if own is not None:
            if any(own.count(symbol) != 1 for symbol in order):
                raise _disagreeing(name, labels, order, _ONCE)
            array = array.take([own.index(symbol) for symbol in order], axis=axis)
    return array


def _labels_of_rows(name: str, table: Any) -> tuple[Labels, ...]:
    """Return the labels of a list of rows of another library, such as the Series of a frame.

    Their names label the rows if they are distinct.  Rows whose labels differ from those of the
    first one raise InvalidInputError.
    """
    own = axis_labels(table[0]) if type(table) in (list, tuple) and len(table) else ()
    if not any(labels is not None for labels in own):
        return ()
    for i, row in enumerate(table):
        if axis_labels(row) != own:
            raise InvalidInputError(
                f"{name}[0] has {_named(own)}, and {name}[{i}] has others or another order; give "
                "a data frame, or plain arrays in one order"
            )
    names = [getattr(row, "name", None) for row in table]
    return (names if None not in names and len(set(names)) == len(names) else None, *own)


def _disagreeing(
    name: str, labels: Sequence[Labels], order: Sequence[str], remedy: str
) -> AlphabetError:
    return AlphabetError(
        f"{name} has {_named(labels)}, the alphabet is {_shown(order)}; {remedy}, or give the "
        "numbers in the order of the alphabet, as a plain array"
    )


def check_positions(name: str, table: Any) -> None:
    """Raise InvalidInputError if a table of two or more axes has labels, but positions count.

    A mapping and a set have no positions.
    """
    if isinstance(table, Mapping | Set):
        kind = type(table).__name__
        raise InvalidInputError(f"{name} is a {kind}; positions count, so give a list or an array")
    labels = axis_labels(table) or _labels_of_rows(name, table)
    if len(labels) > 1 and any(own is not None for own in labels):
        raise InvalidInputError(
            f"{name} has {_named(labels)}, but its positions count: bring its axes into the order "
            f"of the positions and give {name}.to_numpy()"
        )


def check_names(name: str, vector: Any, names: Sequence[str] | None) -> None:
    """Raise InvalidInputError if a vector with labels of text has not `names`, in their order.

    names : those of the columns of the fit; None matches any labels.  Labels that are no texts are
    compared only with names that are the same texts.
    """
    labels = axis_labels(vector)
    if names is None or len(labels) != 1 or labels[0] is None:
        return
    own = [str(label) for label in labels[0]]
    is_text = all(isinstance(label, str) for label in labels[0])
    if own != list(names) and (is_text or set(own) == set(names)):
        raise InvalidInputError(
            f"{name} has {_named(labels)}, the columns of the fit are {_shown(names)}; give {name} "
            "in their order, or as a plain array"
        )


def check_same_rows(**given: Any) -> None:
    """Raise InvalidInputError if the labels of two arguments, paired by position, differ.

    A label is compared only if both arguments have an index.
    """
    first: tuple[str, list[Any]] | None = None
    for name, values in given.items():
        if type(values) in (np.ndarray, list, tuple) or (own := _rows(values)) is None:
            continue
        if first is not None and first[1] != own:
            raise InvalidInputError(
                f"{first[0]} has the index {_shown(first[1])} and {name} {_shown(own)}; bring both "
                f"into one order, or give plain arrays ({name}.to_numpy()) to pair by position"
            )
        first = first or (name, own)


def check_mask(name: str, values: object, searched: frozenset[int] = frozenset()) -> None:
    """Raise if an array, or one of a list, hides entries: numpy uses the values below the mask.

    searched : the ids of the lists that contain `values`, at most as many as an array has axes.
    """
    if _holds_rows(values) and len(searched) < _MOST_AXES:
        if id(values) in searched:
            raise InvalidInputError(f"{name} is the list that contains it; remove it")
        within = searched | {id(values)}
        for i, row in enumerate(values):
            if isinstance(row, np.ma.MaskedArray) or _holds_rows(row):
                check_mask(f"{name}[{i}]", row, within)
    if isinstance(values, np.ma.MaskedArray) and np.ma.getmaskarray(values).any():
        raise InvalidInputError(f"{name} has masked entries; fill them (array.filled(value))")


def _holds_rows(values: object) -> TypeGuard[list[Any] | tuple[Any, ...]]:
    return isinstance(values, list | tuple) and bool(values) and isinstance(values[0], _ROWS)


def _rows(values: Any) -> Labels:
    try:
        return _found(values)[0]
    except Exception:  # a foreign attribute may raise anything
        return None


def _named(labels: Sequence[Labels]) -> str:
    names = ("rows", "columns") if len(labels) == 2 else [f"axis {i}" for i in range(len(labels))]
    shown = [
        f"{axis} {_shown(own)}" for axis, own in zip(names, labels, strict=True) if own is not None
    ]
    return "the labels " + " and ".join(shown)


def _shown(labels: Sequence[Any]) -> str:
    shown = [
        text if (text := str(own)[:16]) == text.strip() else repr(text) for own in labels[:_SHOWN]
    ]
    text = ", ".join(shown)
    return text if len(labels) <= _SHOWN else f"{text}, ... ({len(labels)})"
