"""A small valid file of every format that is read."""

import pathlib
from collections.abc import Callable

import numpy as np
import pynini
from scipy import io, sparse

import fstgrad as fg
from fstgrad.openfst import symbol_table, write_archive, write_file

Run = Callable[[list[str]], tuple[object, str, str]]
AB = fg.Alphabet("ab")
SMALL = "--max-states 3000"  # loss automata stay small, whatever becomes of the strings
TEXT = {
    "pairs.tsv": "ab\tba\nb\tab\naba\tbb\n",
    "words.tsv": "x y\ta b\nz\tb\n",
    "named.tsv": "one\tab\ntwo\taa\n",
    "tagged.tsv": "ab\tba\tN;SG\nb\tab\tV\naba\tbb\tN\n",
    "inputs.txt": "ab\nb\n",
    "spellings.tsv": "a b\tab\nb a\tab\nuh\t\n",
    "costs.txt": "a 0.5\nb -1\n",
    "scored.csv": "id,hypothesis,reference\nx-1,a b,a\ny-1,b,b a\n",
    "tagged.txt": "ab\tN;SG\nb\tV\n",
    "words.txt": "ba\nab\nbb\na\n",
    "alphabet.txt": "a\nb\n",
    "small.rules": (
        "# two rules\nalphabet = ab\nBOTH = a b\nname: a -> b 0.5 / # _ BOTH\nb <-> a 0.25\n"
        "b b -> a 2\n\n? aa => aa 0\n"
    ),
    "confusion.tsv": "a\tb\t0.5\nb\ta\t0.25\n",
    "matrix.txt": "# scores\n   a  b\na  2 -1\nb -1  3\n",
    "loss.txt": "0 0 a a\n0 0 b b 0\n0 0 a b 1\n0 0 b a 0.5\n0 0 a <eps> 1\n0 0 <eps> b 1\n0\n",
    "gold.conllu": (
        "# sent_id = s1\n1\tthe\t_\tDET\t_\t_\t2\tdet\t_\t_\n"
        "2\tdog\t_\tNOUN\t_\t_\t0\troot\t_\t_\n\n"
    ),
    "labels.txt": "root\ndet\n",
    "numbers.lat": "one\n0 1 1 0.5,0\n0 1 2 0,0.25\n1 2 2\n2\n\ntwo\n0 1 1\n1\n",
    "symbols.txt": "<eps> 0\na 1\nb 2\n",
    "column.csv": "rate\n0.5\n0.25\n1.0\n0.75\n0.5\n1.0\n",
    "model.uai": (
        "MARKOV\n3\n2 2 2\n3\n1 0\n2 0 1\n2 1 2\n\n2\n0.4 0.6\n\n4\n1 2 3 4\n\n4\n2 1 1 2\n"
    ),
    "model.evid": "1 1 0\n",
    "counts.csv": "ape,bee,cat\n1,0,2\n0,1,1\n3,1,0\n2,2,1\n0,0,1\n1,4,2\n",
    "grammar.py": (
        "import pynini\nALPHABET = 'ab'\n\n\ndef build(alphabet=None):\n"
        "    return pynini.union('a', 'b').closure().optimize()\n"
    ),
}


def write_seeds(folder: pathlib.Path, run: Run) -> None:
    """Write every seed; what `fstgrad` itself writes is written by it, with `run`."""
    for name, text in TEXT.items():
        (folder / name).write_text(text)
    rng = np.random.default_rng(0)
    np.savez(folder / "weights.npz", weights=rng.normal(size=(2, 2)), symbols=["a", "b"])
    np.savez(folder / "scores.npz", s1=rng.normal(size=(3, 3)), s2=rng.normal(size=(3, 3)))
    np.savez(folder / "one.npz", s1=rng.normal(size=(3, 3)))
    np.savez(folder / "batch.npz", scores=rng.normal(size=(2, 3, 3)), lengths=[2, 1])
    np.savez(folder / "labeled.npz", s1=np.linspace(-1.0, 1.0, 18).reshape(3, 3, 2))
    counts = rng.poisson(1.0, size=(12, 3))
    np.save(folder / "counts.npy", counts)
    np.savez(folder / "dense.npz", counts=counts)
    sparse.save_npz(folder / "counts.npz", sparse.csr_matrix(counts), compressed=False)
    io.mmwrite(folder / "counts.mtx", sparse.coo_matrix(counts))
    names = np.array(["ape", "bee", "cat"], dtype=object)[:, None]
    io.savemat(folder / "counts.mat", {"X": sparse.csc_matrix(counts), "labels": names})
    _write_fsts(folder)
    _write_image(folder / "image.png")
    for arguments in (
        f"train {folder}/pairs.tsv --epochs 1 --objective softmax-margin --window 1 --span 1 "
        f"-o {folder}/trained.npz",
        f"train {folder}/pairs.tsv --epochs 2 --window 0 --order 1 -o {folder}/other.npz",
        f"train {folder}/tagged.tsv --tags 3 --epochs 1 --window 1 --span 1 -o {folder}/tags.npz",
        f"grammar fit edit {folder}/pairs.tsv --held-out 0 -o {folder}/learned.far",
        f"grm fit {folder}/counts.csv --alpha 0.05 --threads 1 -o {folder}/roots.npz",
        f"grad {folder}/pairs.tsv --journal {folder}/lines.jsonl {SMALL}",
    ):
        code, _, said = run(arguments.split())
        if code:
            raise RuntimeError(f"{arguments}: {said}")


def _write_fsts(folder: pathlib.Path) -> None:
    table = symbol_table(AB)
    loss = fg.EditDistance(AB).transducer
    loss.set_input_symbols(table).set_output_symbols(table)
    write_file(folder / "loss.fst", loss)
    lattices = {}
    for name, text in (("one", "ab"), ("two", "b")):
        fst = pynini.union(
            pynini.accep(" ".join(text), weight=0.5, token_type=table),
            pynini.accep("a a", token_type=table),
        )
        lattices[name] = fst.set_input_symbols(table).set_output_symbols(table)
    write_archive(folder / "lattices.far", lattices)
    write_archive(folder / "loss.far", {"edit": loss})


def _write_image(path: pathlib.Path) -> None:
    from PIL import Image

    pixels = np.random.default_rng(1).integers(0, 255, size=(4, 5)).astype(np.uint8)
    Image.fromarray(pixels).save(path)
