"""Files of tables, models and checkpoints: what is damaged, or lies, is an error of one line."""

import json
import struct

import numpy as np
import pytest
from scipy import io, sparse

import fstgrad as fg
from fstgrad.grm.files import read_table
from fstgrad.grm.matlab import read_matlab
from tests.tables import Column, Frame

COUNTS = np.random.default_rng(0).poisson(1.0, size=(60, 4))
NAMES = ["a", "b", "c", "d"]


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.npz"
    model = fg.GeneralizedRootModel(k=3, alpha=0.02).fit(COUNTS, feature_names=NAMES)
    assert len(model.parameters_.flat.values)
    model.save(path)
    return path


@pytest.fixture
def arrays(fitted):
    with np.load(fitted) as archive:
        return dict(archive)


def write(path, arrays):
    with path.open("wb") as file:
        np.savez(file, **arrays)
    return path


def put(name, value):
    def change(arrays):
        arrays[name] = arrays[name].copy()
        arrays[name].flat[0] = value

    return change


def replace(name, value):
    return lambda arrays: arrays.update({name: value})


def settings(**values):
    def change(arrays):
        text = json.loads(str(arrays["settings"])) | values
        arrays["settings"] = np.array(json.dumps(text))

    return change


@pytest.mark.parametrize(
    "change",
    [put("members", 10**9), put("members", 4), put("members", -2), put("members", -(10**12)),
     put("roots", 0), put("roots", 10**9), put("roots", -1), put("sizes", 10**9), put("sizes", 0),
     put("key", 10**12), put("key", -1), put("term", 99), put("term", -1), put("nodes", 9),
     put("nodes", 1), put("pointer", 3), put("coefficients", np.nan), put("intercepts", np.inf),
     replace("names", np.array(["a", "b"])), replace("names", np.array(["a", "a", "c", "d"])),
     replace("intercepts", np.zeros((4, 9))), replace("format", np.array("other")),
     replace("settings", np.array("[")), replace("settings", np.array("[" * 100_000)),
     settings(k=10**9), settings(k="3"), settings(base="other"), settings(n_jobs="all"),
     settings(candidate_sets=[1, 2]), settings(alpha=-1)],
)  # fmt: skip
def test_models_with_lies(tmp_path, arrays, change):
    change(arrays)
    with pytest.raises(fg.FstgradError, match="is not a model"):
        fg.GeneralizedRootModel.load(write(tmp_path / "m.npz", arrays))


def test_every_array_is_needed(tmp_path, arrays):
    for name in list(arrays):
        path = write(tmp_path / "m.npz", {k: v for k, v in arrays.items() if k != name})
        with pytest.raises(fg.InvalidInputError, match=f"no array '{name}'"):
            fg.GeneralizedRootModel.load(path)


def test_damaged_models(tmp_path, fitted):
    data, path = fitted.read_bytes(), tmp_path / "m.npz"
    rng = np.random.default_rng(1)
    for i in rng.choice(len(data), 150, replace=False):
        for mutant in (data[:i], data[:i] + bytes([data[i] ^ 0xFF]) + data[i + 1 :]):
            path.write_bytes(mutant)
            try:
                model = fg.GeneralizedRootModel.load(path)
            except fg.FstgradError:
                continue
            assert np.isfinite(model.score(COUNTS))


def bad_csr(index=10**9, pointer=None):
    matrix = sparse.csr_matrix(COUNTS.astype(float))
    matrix.indices[0] = index
    if pointer is not None:
        matrix.indptr[1] = pointer
    return matrix


@pytest.mark.parametrize(
    "matrix",
    [bad_csr(4), bad_csr(-1), bad_csr(2**31 - 1), bad_csr(0, 10**8), bad_csr(0, -5)],
)
def test_columns_that_are_not_there(tmp_path, matrix, fitted):
    for use in (
        fg.GeneralizedRootModel(k=2).fit,
        fg.GeneralizedRootModel.load(fitted).score,
    ):
        with pytest.raises(fg.InvalidInputError, match="not a valid sparse matrix"):
            use(matrix)
    parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    path = write(tmp_path / "x.npz", {**parts, "shape": [60, 4], "format": np.array(b"csr")})
    with pytest.raises(fg.InvalidInputError, match="cannot be read"):
        read_table(path)


@pytest.mark.parametrize("form", [sparse.csr_matrix, sparse.csc_matrix, sparse.coo_matrix])
def test_read_only_matrices_are_enough(form):
    x = form(COUNTS.astype(float))
    arrays = [
        a for a in (*vars(x).values(), *getattr(x, "coords", ())) if isinstance(a, np.ndarray)
    ]
    for array in arrays:
        array.flags.writeable = False
    model = fg.GeneralizedRootModel(k=2, alpha=0.1).fit(x)
    assert model.score(x) == pytest.approx(model.score(COUNTS), abs=1e-12)


def test_duplicates_of_a_csr_are_summed_in_a_copy(fitted):
    dense = COUNTS.astype(float)
    x = sparse.csr_matrix(dense)
    pointers = np.r_[0, x.indptr[1:] + 1]
    data, indices = np.r_[1.0, x.data], np.r_[x.indices[0], x.indices]
    x = sparse.csr_matrix((data, indices, pointers), dense.shape)  # an entry in two parts
    other = sparse.csr_matrix((np.ones(len(data)), x.indices, x.indptr), dense.shape)
    whole, parts = x.toarray(), [a.copy() for a in (x.data, x.indices, x.indptr)]
    model = fg.GeneralizedRootModel.load(fitted)
    assert model.score(x) == pytest.approx(model.score(whole), abs=1e-12)
    for now, then in zip((x.data, x.indices, x.indptr), parts, strict=True):
        np.testing.assert_array_equal(now, then)
    assert other.nnz == len(data)


def test_duplicates_of_flags_are_one_flag():
    x = sparse.csr_matrix((np.ones(3, bool), [0, 0, 1], [0, 2, 3, 3]), shape=(3, 2))
    found = fg.GeneralizedRootModel(k=1).fit(x).parameters_.intercepts[:, 0]
    np.testing.assert_allclose(np.exp(found), x.toarray().mean(axis=0), atol=1e-6)
    assert x.nnz == 3


def test_a_missing_value_has_a_place():
    x = COUNTS.astype(float)
    x[7, 2] = np.nan
    with pytest.raises(fg.InvalidInputError, match=r"X\[7, 2\] is NaN; fill it"):
        fg.GeneralizedRootModel(k=2).fit(x)


def test_a_table_has_rows_and_columns(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(3.0))
    with pytest.raises(fg.InvalidInputError, match=r"x.npy has shape \(3,\); a table has rows"):
        read_table(tmp_path / "x.npy")


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_pointers_that_end_in_zero(tmp_path, form):
    """scipy takes the matrix for empty and looks at no pointer, then reads where they say."""
    made = {"csr": sparse.csr_matrix, "csc": sparse.csc_matrix}[form]
    parts = {"data": np.ones(1), "indices": np.zeros(1, int), "indptr": np.array([0, 10**9, 0])}
    path = write(tmp_path / "x.npz", {**parts, "shape": [2, 2], "format": np.array(form.encode())})
    with pytest.raises(fg.InvalidInputError, match="pointers descend"):
        read_table(path)
    with pytest.raises(fg.InvalidInputError, match="pointers descend"):
        fg.GeneralizedRootModel(k=2).fit(made(tuple(parts.values()), shape=(2, 2)))


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "first line"),
        ("%%MatrixMarket matrix coordinate real general\n", "no line of sizes"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n3 1 1\n", "line 3: index 3"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n0 1 1\n", "line 3: index 0"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n-1 1 1\n", "line 3: '-1'"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 9\n1 1 1\n", "announces 9"),
        ("%%MatrixMarket matrix coordinate real general\n2 2 1\n1 1 x\n", "line 3: 'x'"),
        ("%%MatrixMarket matrix coordinate real general\n2 9999999999999 1\n1 1 1\n", "larger"),
        ("%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 1 1\n", "real numbers"),
        ("%%MatrixMarket matrix coordinate real symmetric\n2 3 1\n1 1 1\n", "symmetric"),
        ("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n", "3 entries; .* all 2 x 2"),
    ],
)
def test_matrix_market_errors(tmp_path, text, message):
    (tmp_path / "x.mtx").write_text(text)
    with pytest.raises(fg.FstgradError, match=message):
        read_table(tmp_path / "x.mtx")


@pytest.mark.parametrize("symmetry", ["general", "symmetric"])
@pytest.mark.parametrize("form", [np.asarray, sparse.coo_matrix])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_matrix_market_as_scipy_reads_it(tmp_path, symmetry, form, field):
    table = (COUNTS[:4] + COUNTS[:4].T) if symmetry == "symmetric" else COUNTS
    if form is np.asarray and (symmetry == "symmetric" or field == "pattern"):
        return  # no dense symmetric tables, and no dense patterns anywhere
    table = (table > 0).astype(int) if field == "pattern" else table
    io.mmwrite(tmp_path / "x.mtx", form(table), symmetry=symmetry, field=field)
    np.testing.assert_array_equal(read_table(tmp_path / "x.mtx")[0].toarray(), table)


def test_of_two_matrices_of_one_size_none_is_taken(tmp_path):
    np.savez(tmp_path / "t.npz", train=np.ones((2, 3)), test=np.zeros((2, 3)), small=np.eye(2))
    with pytest.raises(
        fg.InvalidInputError, match=r"matrices train, test have .* variable='train'"
    ):
        read_table(tmp_path / "t.npz")
    assert read_table(tmp_path / "t.npz", "test").values.nnz == 0


def test_damaged_tables(tmp_path):
    tables = {
        "mtx": lambda p: io.mmwrite(p, sparse.coo_matrix(COUNTS[:5])),
        "npz": lambda p: sparse.save_npz(p, sparse.csr_matrix(COUNTS[:5]), compressed=False),
        "npy": lambda p: np.save(p, COUNTS[:5]),
        "mat": lambda p: io.savemat(p, {"X": sparse.csc_matrix(COUNTS[:5])}),
        "csv": lambda p: np.savetxt(p, COUNTS[:5], fmt="%d", delimiter=","),
    }
    rng = np.random.default_rng(2)
    for ending, make in tables.items():
        path = tmp_path / f"x.{ending}"
        make(path)
        data = path.read_bytes()
        for i in rng.choice(len(data), min(len(data), 150), replace=False):
            for mutant in (data[:i], data[:i] + bytes([data[i] ^ 0xFF]) + data[i + 1 :]):
                path.write_bytes(mutant)
                try:
                    matrix = read_table(path)[0]
                except fg.FstgradError:
                    continue
                matrix.check_format(full_check=True)


def test_parameters_whose_sums_overflow_have_no_score():
    counts = np.random.default_rng(0).poisson(1.0, size=(30, 3))
    model = fg.GeneralizedRootModel(alpha=0.05).fit(counts)
    model.parameters_.interactions[0].values[:] = 1e300
    with pytest.raises(fg.InvalidInputError, match="row 0 of X has no log-likelihood: sums of"):
        model.score(counts[:2])


@pytest.mark.parametrize("settings", [{"k": np.int8(2)}, {"alpha": np.float16(0.1)}])
@pytest.mark.parametrize("symmetrize", ["joint", "average"])
def test_settings_of_small_types_are_those_of_python(settings, symmetrize):
    x = np.random.default_rng(0).poisson(2.0, (40, 4))
    plain = {name: value.item() for name, value in settings.items()}
    defaults = {"k": 2, "alpha": 0.1, "symmetrize": symmetrize}
    model = fg.GeneralizedRootModel(**{**defaults, **settings}).fit(x)
    same = fg.GeneralizedRootModel(**{**defaults, **plain}).fit(x)
    assert model.score(x) == same.score(x)


def test_numbers_of_samples_are_checked_where_the_value_is_exact():
    model = fg.GeneralizedRootModel(k=1).fit(np.ones((4, 2)))
    with pytest.raises(fg.InvalidInputError, match=r"samples is 50.0; give an integer >= 2"):
        model.log_partition(samples=50.0)


def test_rows_have_one_index():
    X, model = Frame(COUNTS), fg.GeneralizedRootModel(k=1, alpha=0.1)
    turned = Column([1.0] * len(COUNTS), index=range(len(COUNTS))[::-1])
    for name in ("sample_weight", "offset"):
        with pytest.raises(fg.InvalidInputError, match=rf"X has the index 0, 1.* and {name}"):
            model.fit(X, **{name: turned})
    model.fit(X, sample_weight=turned.to_numpy().astype(float))
    with pytest.raises(fg.InvalidInputError, match=r"X has the index 0, 1.* and sample_weight"):
        model.score(X, sample_weight=turned)


MATLAB_HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"


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
def test_matlab_texts_of_every_type(kind, encoding):
    """MATLAB itself writes two bytes per letter, and scipy does not."""
    assert read_matlab(MATLAB_HEADER + char_array("Zoë", kind, encoding)) == {"name": "Zoë"}


def test_a_dense_matlab_table(tmp_path):
    counts = np.random.default_rng(0).poisson(1.0, size=(7, 3)).astype(float)
    io.savemat(tmp_path / "counts.mat", {"X": counts})
    np.testing.assert_array_equal(read_table(tmp_path / "counts.mat")[0].toarray(), counts)
