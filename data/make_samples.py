"""Make the small samples of the tutorials from packages: typos, domains, a treebank, counts.

    pip install codespell==2.4.3 turkish-treebanks==1.0.0 scipy==1.17.1
    python data/make_samples.py FOLDER

FOLDER is what Debian's package hmmer-examples (3.3.2) puts into /usr/share/doc/hmmer/examples.
Items are chosen by the smallest SHA-256: random in effect, without a seed, the same everywhere.
"""

import argparse
import collections
import gzip
import hashlib
import importlib.metadata
import inspect
import pathlib
import re

TARGET = pathlib.Path(__file__).parent
TYPOS, DOMAINS, SENTENCES, WORDS = 1000, 40, 400, 120
MODULES = (
    "cluster", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal",
    "sparse", "sparse.linalg", "spatial", "special", "stats",
)  # fmt: skip
_WORDS = (
    "about above act additional after against all along also and any appear applied apply are "
    "args argument arguments around array array_like arrays assumed assuming attributes available "
    "axis based because been before being below between bool both broadcast broadcasted but "
    "calculate callable called calls can case cases casting check class code collection compute "
    "computed computes consider containing contains core corresponding could currently data "
    "default defaults defined defines desired details determine determines dict different "
    "dimension dimensions documentation does doi dtype during each either element elements else "
    "entry equal equivalent etc even example examples false features find first float following "
    "for from func function functions further general generated give given greater handle has "
    "have here how however http https if ignored import index inherits input inputs instance "
    "instead int integer into ints its itself journal keyword kwargs last left less library like "
    "list matplotlib may means method methods more most must name nan nans ndarray new none not "
    "note notes number numbers numpy object obtained omit omitted one only option optional "
    "optionally options order org other otherwise out output over pages parameter parameters "
    "particular passed passing per perform performed performing please plot plt point points "
    "policy possible propagate provided pyplot raise raised raises rather reduced ref reference "
    "references remains required res respect result results return returned returns right same "
    "scalar scipy second see set shape shapes should show shown since single size smaller some "
    "sometimes specifically specified standard still str subok such support supported than that "
    "the their them then there these they this three thus treated true tuple two type types "
    "typically under unless until use used uses using value valueerror values version "
    "versionadded via vol warning was way well were when where whether which while will with "
    "within without would written yet you your"
)
COMMON = set(_WORDS.split())


def chosen(items, count):
    """Return the items of the smallest hash, in their order."""
    least = set(sorted(items, key=lambda x: hashlib.sha256(x.encode()).digest())[:count])
    return [item for item in items if item in least]


def packaged(package, path):
    """Return the text of a file of an installed package."""
    return pathlib.Path(importlib.metadata.distribution(package).locate_file(path)).read_text(
        encoding="utf-8"
    )


def typos():
    """Misspelling, tab, correction: lower-case letters, one correction, 4 to 12 letters."""
    rows = []
    for line in packaged("codespell", "codespell_lib/data/dictionary.txt").splitlines():
        wrong, _, right = line.partition("->")
        if re.fullmatch("[a-z]{4,12}", right) and re.fullmatch("[a-z]{4,12}", wrong):
            rows.append(f"{wrong}\t{right}")
    return "\n".join(chosen(rows, TYPOS)) + "\n"


def domains(folder):
    """FASTA of protein domains of two families of Pfam, gaps left out."""
    lines = []
    for family, path in (("fn3", "tutorial/fn3.sto"), ("RRM_1", "testsuite/RRM_1.sto.gz")):
        content = (folder / path).read_bytes()
        text = gzip.decompress(content) if path.endswith(".gz") else content
        sequences = collections.defaultdict(str)
        for line in text.decode("utf-8").splitlines():
            if line and not line.startswith(("#", "//")):
                name, row = line.split()
                sequences[name] += re.sub("[^A-Za-z]", "", row).upper()
        names = [n for n, s in sequences.items() if re.fullmatch("[ACDEFGHIKLMNPQRSTVWY]+", s)]
        for name in chosen(names, DOMAINS):
            lines += [f">{name} {family}", sequences[name]]
    return "\n".join(lines) + "\n"


def treebank():
    """Sentences of 3 to 15 words of the Turkish Web Treebank, in CoNLL-U."""
    blocks = packaged("turkish-treebanks", "data/web.conllu").strip().split("\n\n")
    short = [b for b in blocks if 3 <= sum(row[0] != "#" for row in b.splitlines()) <= 15]
    return "\n\n".join(chosen(short, SENTENCES)) + "\n\n"


def counts():
    """CSV: how often each of the most frequent words is in the docstring of a function of SciPy."""
    texts = []
    for module in MODULES:
        package = importlib.import_module(f"scipy.{module}")
        for name in sorted(package.__all__):
            member = getattr(package, name)
            if not inspect.isroutine(member) and not inspect.isclass(member):
                continue  # the distributions of scipy.stats share one long text
            text = inspect.getdoc(member) or ""
            texts.append(re.split(r"\n(?:Examples|References|Notes|See Also|Raises)\n-+", text)[0])
    parts = [
        [" ".join(part.split()) for part in re.split(r"\n\s*\n|\n(?=\S)", text)] for text in texts
    ]
    shared = collections.Counter(part for text in parts for part in set(text))
    documents = []
    for text in parts:
        own = " ".join(part for part in text if shared[part] < 4)  # no text that many repeat
        words = re.findall("[a-z]{3,}", own.lower())
        if len(words) >= 30:
            documents.append(collections.Counter(words))
    frequency = collections.Counter(w for document in documents for w in document)
    columns = [w for w, _ in frequency.most_common() if w not in COMMON][:WORDS]
    rows = {",".join(str(d[w]) for w in columns) for d in documents}
    return "\n".join([",".join(columns), *sorted(rows)]) + "\n"


def main():
    """Write the four files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="the examples of HMMER")
    folder = parser.parse_args().folder
    made = {
        "typos.tsv": typos(), "domains.fasta": domains(folder),
        "turkish_web.conllu": treebank(), "scipy_words.csv": counts(),
    }  # fmt: skip
    for name, text in made.items():
        (TARGET / name).write_text(text, encoding="utf-8")
        digest = hashlib.sha256(text.encode()).hexdigest()
        print(f"{name}: {len(text):,} characters, SHA-256 {digest}")


if __name__ == "__main__":
    main()
