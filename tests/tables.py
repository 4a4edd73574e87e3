"""Tables and columns with labels, like those of pandas, which need not be installed."""

import numpy as np


class Column:
    """Like pandas.Series: values by position, with an index."""

    def __init__(self, values, index=None):
        self.index = list(range(len(values))) if index is None else list(index)
        self._values = np.empty(len(values), dtype=object)
        self._values[:] = values

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return iter(self._values)

    def __array__(self, dtype=None, copy=None):
        return np.array(self._values.tolist(), dtype=dtype)

    def to_numpy(self):
        return self._values


class Frame:
    """Like pandas.DataFrame: iterating it gives the names of its columns."""

    def __init__(self, values, index=None, columns=None):
        self._values = np.array(values)
        self.ndim = 2
        rows, columns_ = self._values.shape
        self.index = list(range(rows)) if index is None else list(index)
        self.columns = list(range(columns_)) if columns is None else list(columns)

    def __len__(self):
        return len(self._values)

    def __iter__(self):
        return iter(self.columns)

    def __array__(self, dtype=None, copy=None):
        return self._values.astype(dtype or self._values.dtype)

    def to_numpy(self):
        return self._values


class Labelled:
    """Like xarray.DataArray: an array whose last axis has coordinates."""

    def __init__(self, values, names):
        self._values = np.array(values)
        self.ndim, self.shape, self.dtype = (
            self._values.ndim,
            self._values.shape,
            self._values.dtype,
        )
        self.dims = tuple(f"axis {i}" for i in range(self.ndim))
        self.coords = {self.dims[-1]: np.array(names).view(_Coordinate)}

    def __len__(self):
        return len(self._values)

    def __array__(self, dtype=None, copy=None):
        return self._values.astype(dtype or self._values.dtype)

    def to_numpy(self):
        return self._values


class _Coordinate(np.ndarray):
    def to_numpy(self):
        return np.asarray(self)
