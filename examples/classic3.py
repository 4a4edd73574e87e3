"""Sets of words in documents
==========================

This program prints the strongest words, pairs and triples of a corpus.  Without a file, the corpus
consists of the descriptions of SciPy's functions.  With Classic3 (`data/classic3.mat`), the program
repeats the experiment of Inouye, Ravikumar and Dhillon (2016): the 500 most frequent words of 3,893
abstracts (medicine, information retrieval, aeronautics), k = 3, lambda = 0.01.

    python examples/classic3.py [data/classic3.mat] [COLUMNS]
"""

import pathlib
import sys
import time

import fstgrad as fg
from fstgrad.grm.files import read_table

DATA = pathlib.Path(__file__).parents[1] / "data"


def table(model, order, top, sign):
    """Print the `top` sets of a size and a sign."""
    print(f"\n{sign} sets of {order}")
    for rank, found in enumerate(model.top_interactions(order, top, sign=sign), 1):
        print(f"{rank:4d}  {found.value:+.3f}  {' + '.join(found.names)}")


def main(path=DATA / "scipy_words.csv", features=500, top=15):
    counts, words, *_ = read_table(path)
    start = time.perf_counter()
    model = fg.GeneralizedRootModel(
        k=3, alpha=0.01, tol=1e-4, symmetrize="average", n_jobs=-1, verbose=True
    )
    model.fit(counts[:, :features], feature_names=words[:features])
    print(
        f"{model.n_candidates_:,} candidate sets, {time.perf_counter() - start:.1f} s, "
        f"largest KKT residual {model.kkt_.max():.1e}"
    )
    for order in (1, 2, 3):
        for sign in ("positive", "negative"):
            table(model, order, top, sign)
    return model


if __name__ == "__main__":
    model = main(*sys.argv[1:2], *(int(a) for a in sys.argv[2:3]))
    figure = fg.plot.word_graph(model.to_networkx(25))
