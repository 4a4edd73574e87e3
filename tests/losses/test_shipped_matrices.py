"""Substitution matrices by name: the files are those of NCBI as Biopython ships them."""

import numpy as np
import pytest

import fstgrad as fg
from fstgrad.losses.matrices import MATRICES, SubstitutionMatrix, alignment_scores

PROTEIN = fg.Alphabet.named("protein")


def test_scores_are_over_an_alphabet():
    with pytest.raises(fg.InvalidInputError, match="alphabet"):
        alignment_scores(np.eye(3), "ARN")


@pytest.mark.parametrize("name", MATRICES)
def test_every_matrix_is_square_and_symmetric(name):
    found = SubstitutionMatrix.read(name)
    assert found.rows == found.columns
    np.testing.assert_array_equal(found.scores, found.scores.T)
    assert (found.scores == found.scores.round()).all()


@pytest.mark.parametrize(
    "name, a, b, score",  # read off the published tables
    [("BLOSUM62", "W", "W", 11), ("BLOSUM62", "L", "I", 2), ("blosum50", "H", "Y", 2),
     ("PAM250", "C", "C", 12), ("pam30", "W", "D", -15), ("NUC.4.4", "A", "T", -4),
     ("nuc44", "G", "G", 5), ("BLOSUM45", "P", "P", 9), ("BLOSUM80", "W", "W", 16),
     ("BLOSUM90", "C", "C", 9), ("PAM70", "W", "W", 13)],
)  # fmt: skip
def test_entries(name, a, b, score):
    found = SubstitutionMatrix.read(name)
    assert found.over(fg.Alphabet(a + b if a != b else a))[0, -1] == score


def test_a_matrix_by_name_in_a_loss():
    """HEAGAWGHE-E against PAW-HEAE: the example of Durbin et al. (1998), section 2.3."""
    loss = fg.SmithWaterman(PROTEIN, matrix="BLOSUM50", gap_open=8.0)
    assert loss("HEAGAWGHEE", "PAWHEAE") == -28


def test_a_file_of_the_name_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "BLOSUM62").write_text("  a\na 7\n")
    assert SubstitutionMatrix.read("BLOSUM62").rows == ("a",)
    with pytest.raises(FileNotFoundError):
        SubstitutionMatrix.read("BLOSUM63")


def test_matrices_on_the_command_line(run):
    options = ("loss", "-", "--loss", "smith-waterman", "--gap-open", 8, "--alphabet", "protein")
    code, out, err = run(*options, "--matrix", "blosum50", stdin="HEAGAWGHEE\tPAWHEAE\n")
    assert (code, out, err) == (0, "-28.0\n", "")
    code, _, err = run(*options, "--matrix", "BLOSUM63", stdin="A\tA\n")
    assert code == 2
    assert "'BLOSUM63' is neither a file nor one of BLOSUM45, BLOSUM50, BLOSUM62" in err


def test_a_model_keeps_a_matrix_of_a_name(run, tmp_path):
    pairs, model = tmp_path / "pairs.fa", tmp_path / "model.npz"
    pairs.write_text(">1\nACD\n>2\nWCD\n>3\nWW\n>4\nAC\n")
    code, _, err = run(
        "train", pairs, "--loss", "alignment", "--matrix", "PAM250", "--gap-open", 4,
        "--alignment", "none", "--epochs", 2, "-o", model,
    )  # fmt: skip
    assert (code, "alphabet: 4 symbols from the data" in err) == (0, True)
    code, out, _ = run("evaluate", model, pairs)
    assert (code, '"loss"' in out) == (0, True)
