import collections
import hashlib
import pathlib
import re

import pytest

import fstgrad as fg
from fstgrad.io import read_rows

DATA = pathlib.Path(__file__).parent.parent / "data"
README = (DATA / "README.md").read_text()


def test_checksum_is_the_one_in_the_readme():
    digest = hashlib.sha256((DATA / "cmudict2000.tsv").read_bytes()).hexdigest()
    assert f"| SHA-256 | `{digest}` |" in README


def test_licence_lies_beside_the_data():
    assert "Carnegie Mellon University" in (DATA / "cmudict2000.LICENSE").read_text()
    assert "cmudict2000.LICENSE" in README


def test_pairs_are_as_described():
    pairs = [row.pair("chars", "words") for row in read_rows(DATA / "cmudict2000.tsv")]
    words = ["".join(x) for x, _ in pairs]
    assert len(words) == 2000
    assert words == sorted(set(words))
    assert all(re.fullmatch("[a-z]+", word) for word in words)
    assert len(fg.Alphabet.from_sequences(y for _, y in pairs)) == 39
    lengths = collections.Counter(len(y) for _, y in pairs)
    table = re.findall(r"^\| (?:length in phones|words) \|(.*)\|$", README, flags=re.MULTILINE)
    listed, counts = ([int(cell) for cell in row.split("|")] for row in table)
    assert lengths == dict(zip(listed, counts, strict=True))


SAMPLES = ("typos.tsv", "domains.fasta", "turkish_web.conllu", "scipy_words.csv")


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_are_those_of_the_readme(name):
    digest = hashlib.sha256((DATA / name).read_bytes()).hexdigest()
    assert f"| `{name}` | `{digest}` |" in README


def test_samples_have_the_sizes_of_the_readme():
    texts = {name: (DATA / name).read_text(encoding="utf-8") for name in SAMPLES}
    assert len(texts["typos.tsv"].splitlines()) == 1000
    families = re.findall(r"^>\S+ (\S+)$", texts["domains.fasta"], flags=re.MULTILINE)
    assert collections.Counter(families) == {"fn3": 40, "RRM_1": 40}
    assert texts["turkish_web.conllu"].count("# text = ") == 400
    head, *rows = texts["scipy_words.csv"].splitlines()
    assert (len(head.split(",")), len(rows)) == (120, 742)
