"""Validation of public arguments.

A check raises InvalidInputError, which names the argument, or returns the converted value.

Index
-----
- `log_weights` : scores, finite or -inf; `score_array` : scores before they are checked;
  `cost_array`, `cost` : costs, finite or inf.
- `real_array` : finite numbers of a given shape; `direction_array` : numbers up to 1e150;
  `float_array` : any numbers; `kind_of_others` : texts, times, complex numbers.
- `index_array`, `index` : integers in a range; `output_array` : an array to add results to.
- `sparse_matrix` : a scipy matrix whose indices are within its shape.
- `positive_number`, `positive_integer`, `one_of`, `flag` : scalars, modes and booleans.
- `instance`, `optional`, `path_name` : objects of a class, file names; `call_function` : the result
  of a function.
- `writable` : a copy of a read-only array; `freeze` : make arrays read-only.
- `generator` : a random generator; `extra` : import an optional package, or say how to install it.

In a shape, None is any length.
"""

import importlib
import os
from collections.abc import Sequence
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from fstgrad.core.axis_labels import check_mask, check_positions
from fstgrad.core.errors import FstgradError, InvalidInputError, MissingDependencyError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
Shape = tuple[int | None, ...]
_DISTRIBUTIONS = {"PIL": "Pillow", "sklearn": "scikit-learn"}  # package names
LARGEST_SCORE = 1e300  # sums of scores up to this are finite
LARGEST_COST = _LARGEST_FACTOR = 1e150  # sums and products of numbers up to this are finite
COSTS = "costs are finite, at least -1e+150 so that sums are too, or inf to forbid"
_OTHERS = "cmMSTU"  # kinds of dtypes of complex numbers, times and texts
_FLOAT64 = np.dtype(np.float64)
Seed = np.random.Generator | int | None
Kind = TypeVar("Kind")


def log_weights(name: str, values: npt.ArrayLike, shape: Shape | None = None) -> FloatArray:
    """Return `values` as float64 log-weights, at most `LARGEST_SCORE` or -inf (forbidden)."""
    array = score_array(name, values, shape)
    if array.size and not np.maximum.reduce(array, axis=None) <= LARGEST_SCORE:  # NaN too
        raise unusable_score(*_wrong(name, array, ~(array <= LARGEST_SCORE)))
    return with_finite_sums(array)


def score_array(name: str, values: npt.ArrayLike, shape: Shape | None = None) -> FloatArray:
    """Return scores as `float_array` does; a mask is an error, because True is no log-weight."""
    array = float_array(name, values, shape)
    if array is not values and array.ndim and np.asarray(values).dtype == np.bool_:
        raise InvalidInputError(
            f"{name} has dtype bool, but scores are log-weights in nats; give np.where(mask, 0, "
            "-np.inf) to forbid what a mask excludes, or numbers"
        )
    return array


def with_finite_sums(scores: FloatArray) -> FloatArray:
    """Return scores whose finite values are at least -`LARGEST_SCORE`; those of finfo.min are not.

    NaN, as in padding, remains.

    Examples
    --------
    >>> with_finite_sums(np.array([-1.7e308, -np.inf, 2.0]))
    array([-1.e+300,     -inf,  2.e+000])
    """
    if scores.size and np.fmin.reduce(scores, axis=None) < -LARGEST_SCORE:
        deep = (scores < -LARGEST_SCORE) & (scores > -np.inf)
        if deep.any():
            return np.where(deep, -LARGEST_SCORE, scores)
    return scores


def unusable_score(place: str, value: float) -> InvalidInputError:
    """Return the error for the score `value`: NaN, +inf or above `LARGEST_SCORE`."""
    limit = f"at most {LARGEST_SCORE:g}, so that their sums are finite"
    rule = limit if np.isfinite(value) else "finite, or -inf to forbid"
    return InvalidInputError(f"{place} is {value}; scores are log-weights in nats: {rule}")


def real_array(
    name: str, values: npt.ArrayLike, shape: Shape | None = None, *, may_have_labels: bool = False
) -> FloatArray:
    """Return `values` as a float64 array without NaN and infinities.

    may_have_labels : whether a table with labels is valid, as in `float_array` it is not.
    """
    array = (_numbers if may_have_labels else float_array)(name, values, shape)
    if not (good := np.isfinite(array)).all():
        raise InvalidInputError("{} is {}; give finite numbers".format(*_wrong(name, array, ~good)))
    return array


def direction_array(name: str, values: npt.ArrayLike, shape: Shape | None = None) -> FloatArray:
    """Return `values` as float64 of at most 1e150 in absolute value, so products are finite."""
    array = float_array(name, values, shape)
    if array.size and not (largest := max(array.max(), -array.min())) <= _LARGEST_FACTOR:
        real_array(name, array)
        raise InvalidInputError(
            f"{name} has an entry of {largest:g}; products with more than 1e+150 overflow, scale it"
        )
    return array


def float_array(name: str, values: npt.ArrayLike, shape: Shape | None = None) -> FloatArray:
    """Return `values` as a float64 array of real numbers, which may be infinite or NaN.

    A table with labels is an error, because its positions count.
    """
    if type(values) is not np.ndarray:
        check_positions(name, values)
    return _numbers(name, values, shape)


def kind_of_others(values: Any) -> str:
    """Return the kind of dtype of texts, times or complex numbers in an array or a frame, or "".

    NumPy and scikit-learn read texts and times as numbers.
    """
    dtypes = getattr(values, "dtypes", None)  # of the columns of a frame
    if dtypes is not None and all(getattr(own, "kind", "O") in "biuf" for own in dtypes):
        return ""
    array = np.asarray(values)
    kind = _kind_of_objects(array) if array.dtype.kind == "O" else array.dtype.kind
    return kind if kind in _OTHERS else ""


def _numbers(name: str, values: npt.ArrayLike, shape: Shape | None) -> FloatArray:
    if type(values) is np.ndarray and values.dtype is _FLOAT64:
        _check_shape(name, values, shape)
        return values
    check_mask(name, values)
    try:
        given: Any = values
        if getattr(getattr(values, "dtype", None), "kind", "O") == "O":  # also of pandas
            given = np.asarray(values)
        kind = _kind_of_objects(given) if given.dtype.kind == "O" else given.dtype.kind
        array = None if kind in _OTHERS else np.asarray(given, dtype=np.float64)
    except Exception as error:  # a foreign __array__ may raise anything
        what = f"{str(error).rstrip('.')}; give an array of float64"
        raise InvalidInputError(f"{name} is not an array of numbers: {what}") from error
    if array is None:
        what = "is not an array of numbers: it has texts; convert them"
        if kind == "c":
            what = f"has complex numbers, {given.dtype}; give its real part"
        elif kind in "mM":
            what = f"has times, {given.dtype}; give numbers in a unit"
        raise InvalidInputError(f"{name} {what}")
    _check_shape(name, array, shape)
    return array


def _kind_of_objects(array: Any) -> str:
    """Return the kind of texts or times that NumPy would read as numbers ("1_0" as 10), else O."""
    if any(isinstance(value, str | bytes) for value in array.flat):
        return "U"
    times = np.datetime64 | np.timedelta64
    return "m" if any(isinstance(value, times) for value in array.flat) else "O"


def index_array(
    name: str,
    values: npt.ArrayLike,
    size: int,
    shape: Shape | None = None,
    *,
    lower: int = 0,
    what: str = "indices",
) -> IntArray:
    """Return `values` as int64 indices in [lower, size); `what` they are is said in the error."""
    array = integers(name, values)
    if array.dtype.kind == "u" and array.size and array.max() >= 2**63:
        raise InvalidInputError(f"{name} has {array.max()}, which does not fit an int64")
    array = array.astype(np.int64)
    _check_shape(name, array, shape)
    if array.size and (array.min() < lower or array.max() >= size):
        place, value = _wrong(name, array, (array < lower) | (array >= size))
        limits = _range(what, lower, size, is_large=int(value) >= size)
        raise InvalidInputError(f"{place} is {value}; {limits}")
    return array


def _range(what: str, lower: int, size: int, *, is_large: bool) -> str:
    """Return which integers are allowed; a size of 2^31 or more only keeps them from overflow.

    is_large : whether it is said to one that is too large
    """
    if size <= lower:
        return f"there are no {what}, so give none"
    return f"{what} run from {lower}" + (f" to {size - 1}" if size < 2**31 or is_large else "")


def index(name: str, value: int, size: int, *, lower: int = 0) -> int:
    """Return `value` as an int in [lower, size)."""
    if not is_integer(value):
        raise InvalidInputError(f"{name} is {value!r}; give an integer")
    if not lower <= value < size:
        limits = _range("indices", lower, size, is_large=value >= size)
        raise InvalidInputError(f"{name} is {value!r}; {limits}")
    return int(value)


def output_array(name: str, array: FloatArray, shape: Shape) -> FloatArray:
    """Return the caller's float64 array of this shape, to which results are added in place."""
    instance(name, array, np.ndarray, "an array of float64")
    check_mask(name, array)
    if array.dtype != np.float64 or not (array.flags.writeable and array.dtype.isnative):
        kind = array.dtype if array.flags.writeable else "read-only"
        raise InvalidInputError(f"{name} is {kind}; give an array of float64 that can be written")
    _check_shape(name, array, shape)
    return array


def integers(name: str, values: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return `values` as an array of any integer dtype and shape (an empty one may be float).

    A table with labels is an error, because its positions count.
    """
    if type(values) is not np.ndarray:
        check_positions(name, values)
    check_mask(name, values)
    try:
        array = np.asarray(values)
    except Exception as error:
        raise InvalidInputError(f"{name} is not an array of integers: {error}") from error
    if array.dtype.kind not in "iu" and not (array.size == 0 and array.dtype.kind == "f"):
        raise InvalidInputError(f"{name} has dtype {array.dtype}; give integers")
    return array


def sparse_matrix(name: str, matrix: Any, *, copy: bool = False) -> Any:
    """Return a scipy.sparse matrix whose indices are checked.

    The loops of scipy and fstgrad write at these indices without a check.

    copy : whether to copy its arrays, for a caller that sorts or sums entries in place.

    Raises
    ------
    InvalidInputError
        An index is outside the shape, or the index pointers decrease.
    """
    try:
        matrix = matrix.copy() if copy else matrix
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)
            # scipy does not check the pointers if the last one is 0
            if hasattr(matrix, "indptr") and (np.diff(matrix.indptr) < 0).any():
                raise ValueError("its pointers descend")
        elif matrix.format == "coo":
            for axis, size in zip((matrix.row, matrix.col), matrix.shape, strict=True):
                index_array("an index", axis, size)
    except (ValueError, TypeError, IndexError, AttributeError) as error:
        raise InvalidInputError(f"{name} is not a valid sparse matrix: {error}") from error
    return matrix


def cost_array(name: str, values: npt.ArrayLike, shape: Shape | None = None) -> FloatArray:
    """Return `values` as float64 costs, at least -1e150, or +inf (forbidden)."""
    array = float_array(name, values, shape)
    if (bad := ~(array >= -LARGEST_COST)).any():
        place, value = _wrong(name, array, bad)
        raise InvalidInputError(f"{place} is {value}; {COSTS}")
    return array


def cost(name: str, value: float) -> float:
    """Return `value` as a float >= 0 or +inf (forbidden)."""
    return positive_number(name, value, allow_zero=True, or_inf=True)


def real_number(name: str, value: float, *, needed: str = "a finite number") -> float:
    """Return `value` as a finite float."""
    check_mask(name, value)
    try:
        array = np.asarray(value)
    except Exception as error:
        raise InvalidInputError(f"{name} is {value!r}; give a number") from error
    # reject bools, fractions, text, integers beyond 64 bits, and floats wider than float64
    if array.ndim or array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise InvalidInputError(f"{name} is {value!r}; give a number")
    number = float(array)
    if not np.isfinite(number):
        raise InvalidInputError(f"{name} is {value!r}; give {needed}")
    return number


def positive_number(
    name: str,
    value: float,
    *,
    allow_zero: bool = False,
    most: float = np.inf,
    or_inf: bool = False,
) -> float:
    """Return `value` as a float > 0, or >= 0 if `allow_zero`, and at most `most`.

    It is finite, or +inf if `or_inf`.
    """
    if or_inf and isinstance(value, float | np.floating) and value == np.inf:
        return np.inf
    needed = f"a {'' if or_inf else 'finite '}number >{'=' if allow_zero else ''} 0"
    needed += " or inf" if or_inf else f", at most {most:g}" if most < np.inf else ""
    number = real_number(name, value, needed=needed)
    if not 0 <= number <= most or (number == 0 and not allow_zero):
        raise InvalidInputError(f"{name} is {value!r}; give {needed}")
    return number


def divisor(name: str, value: float, *, or_inf: bool = False) -> float:
    """Return `value` as a float, at least 1e-150, so that quotients are finite."""
    number = positive_number(name, value, or_inf=or_inf)
    if number < 1 / _LARGEST_FACTOR:
        raise InvalidInputError(f"{name} is {value!r}; give a number >= 1e-150")
    return number


def is_integer(value: object) -> bool:
    """Return whether a value is a Python or NumPy integer, but not a bool or a timedelta."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool | np.timedelta64)


def positive_integer(name: str, value: int, *, minimum: int = 1) -> int:
    """Return `value` as an int, at least `minimum` and below 2^63."""
    if not is_integer(value) or value < minimum:
        raise InvalidInputError(f"{name} is {value!r}; give an integer >= {minimum}")
    if value >= 2**63:
        raise InvalidInputError(
            f"{name} has {int(value).bit_length()} bits; give an integer below 2^63"
        )
    return int(value)


def one_of(name: str, value: str, options: Sequence[str]) -> str:
    """Return `value` if it is one of `options`."""
    if not isinstance(value, str) or value not in options:
        raise InvalidInputError(f"{name} is {value!r}; choose one of {', '.join(options)}")
    return value


def instance(name: str, value: object, kind: Any, what: str) -> None:
    """Raise InvalidInputError unless `value` is an instance of `kind`, which errors call `what`."""
    if not isinstance(value, kind):
        raise InvalidInputError(f"{name} is a {type(value).__name__}; give {what}")


def optional(name: str, value: Kind | None, kind: type[Kind], what: str) -> Kind | None:
    """Return `value`; raise InvalidInputError unless it is None or an instance of `kind`."""
    if value is not None:
        instance(name, value, kind, what)
    return value


def call_function(name: str, function: Any, *given: Any, **named: Any) -> Any:
    """Return the result of a caller's function; errors raised inside it propagate.

    Raises
    ------
    InvalidInputError
        The function cannot be called with these arguments.
    """
    try:
        return function(*given, **named)
    except Exception as error:
        if error.__traceback__ and error.__traceback__.tb_next is None:  # the call itself failed
            raise InvalidInputError(f"{name} is {function!r}; calling it fails: {error}") from error
        raise


def path_name(path: Any, name: str = "path") -> str:
    """Return a path as text.

    Raises
    ------
    InvalidInputError
        `path` is not a path, or has characters that no file name can have.
    """
    try:
        text = os.fsdecode(path)
        is_name = b"\0" not in os.fsencode(text)
    except TypeError as error:
        raise InvalidInputError(f"{name} is a {type(path).__name__}; give a path") from error
    except UnicodeError:
        is_name = False
    if not is_name:
        raise InvalidInputError(f"{path!r} is not a path; a file name cannot have these characters")
    return text


def writable(array: FloatArray) -> FloatArray:
    """Return an array of the caller for kernels: itself, or a C-contiguous copy that is writable.

    numba would compile a kernel again for arrays that are read-only or have strides.  Kernels do
    not write to it.
    """
    return array if array.flags.carray else array.copy()


def freeze(**arrays: Any) -> None:
    """Make arrays read-only.

    Raises
    ------
    InvalidInputError
        An argument is not an array.
    """
    for name, array in arrays.items():
        instance(name, array, np.ndarray, "an array")
        array.flags.writeable = False


def generator(rng: Seed) -> np.random.Generator:
    """Return a numpy Generator: `rng` itself, or a new one from a seed >= 0 or None (entropy)."""
    if isinstance(rng, np.random.Generator):
        return rng
    if rng is None or (is_integer(rng) and rng >= 0):
        return np.random.default_rng(rng)
    raise InvalidInputError(f"rng is {rng!r}; give a numpy Generator, an integer seed >= 0 or None")


def extra(package: str, extra_name: str, purpose: str) -> ModuleType:
    """Import an optional module; if it is missing, raise MissingDependencyError with the extra."""
    name = package.split(".")[0]
    needed = f"{purpose} needs the package {_DISTRIBUTIONS.get(name, name)!r}, which"
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        remedy = f"pip install 'fstgrad[{extra_name}]'"
        raise MissingDependencyError(f"{needed} is not installed: {remedy}") from error
    except ImportError as error:  # damaged, or interrupted by a signal while loading
        raise FstgradError(f"{needed} cannot be imported ({error}); reinstall it") from error


def _check_shape(name: str, array: npt.NDArray[np.generic], shape: Shape | None) -> None:
    if shape is None or shape == array.shape:
        return
    if array.ndim != len(shape) or any(
        want not in (None, have) for want, have in zip(shape, array.shape, strict=True)
    ):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        raise InvalidInputError(f"{name} has shape {array.shape}; the shape must be ({wanted})")


def _wrong(name: str, array: npt.NDArray[Any], mask: BoolArray) -> tuple[str, Any]:
    """Return the name and the value of the first entry under a mask; a number has no index."""
    where = tuple(int(i) for i in np.argwhere(mask)[0])
    return f"{name}{list(where)}" if where else name, array[where]


def flag(name: str, given: Any) -> bool:
    """Return a Python or NumPy bool as bool; raise InvalidInputError for any other value."""
    if not isinstance(given, bool | np.bool_):
        raise InvalidInputError(f"{name} is {given!r}; give True or False")
    return bool(given)
