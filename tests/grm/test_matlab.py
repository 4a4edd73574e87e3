"""MATLAB files with what MATLAB itself writes and scipy does not: texts of two bytes per letter."""

import struct

import numpy as np
import pytest
from scipy import io

from fstgrad.grm.files import read_table
from fstgrad.grm.matlab import read_matlab

HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"


def element(kind, content):
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def char_array(text, kind, encoding):
    flags, shape = struct.pack("<II", 4, 0), struct.pack("<ii", 1, len(text))
    parts = ((6, flags), (5, shape), (1, b"name"), (kind, text.encode(encoding)))
    return element(14, b"".join(element(*part) for part in parts))


@pytest.mark.parametrize(
    "kind, encoding",
    [(1, "latin-1"), (2, "latin-1"), (4, "utf-16-le"), (16, "utf-8"), (17, "utf-16-le"),
     (18, "utf-32-le")],
)  # fmt: skip
def test_texts_of_every_type(kind, encoding):
    assert read_matlab(HEADER + char_array("Zoë", kind, encoding)) == {"name": "Zoë"}


def test_a_dense_table(tmp_path):
    counts = np.random.default_rng(0).poisson(1.0, size=(7, 3)).astype(float)
    io.savemat(tmp_path / "counts.mat", {"X": counts})
    np.testing.assert_array_equal(read_table(tmp_path / "counts.mat")[0].toarray(), counts)
