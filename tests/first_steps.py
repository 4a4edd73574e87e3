"""What each kind of user does first: `python -m tests.first_steps`.

Wheels bring the kernels that these steps call compiled; `make kernels` records them.
"""

import contextlib
import functools
import io
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from unittest import mock

import numpy as np

import fstgrad as fg
from fstgrad.core.errors import MissingDependencyError

ROOT = pathlib.Path(__file__).parents[1]
BASH = shutil.which("bash") or "bash"  # on Windows that of Git, not that of the system
COMMAND = re.compile(r"^\$ (.*)$", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = sorted((ROOT / "docs/cli/tasks").glob("*.md"))
_ABC = fg.Alphabet("abc")
_GOLD = "abcab"


def edit_losses() -> None:
    """Compute objectives over strings under losses of the tropical semiring."""
    for loss in (fg.EditDistance(_ABC), fg.SmithWaterman(_ABC), fg.Hamming(_ABC)):
        _objectives(loss)
    loss = fg.EditDistance(_ABC)
    fg.softmax_margin(np.zeros((5, 3)), _GOLD, loss.compile(_GOLD, cap=2.0))
    fg.sampled_softmax_margin(np.zeros((5, 3)), _GOLD, loss, samples=200, rng=0)
    fg.mbr(fg.StringDistribution(np.zeros((5, 3))), loss, samples=20, rng=0)


def ngram_losses() -> None:
    """Compute objectives over strings under a loss of the probability semiring."""
    _objectives(fg.NGram(_ABC, smoothing=1.0))


def _objectives(loss: fg.Loss) -> None:
    b = loss.compile(_GOLD)
    for shape in ((5, 3), (5, 4, 3), (5, 4, 4, 3)):
        scores = np.zeros(shape)
        fg.softmax_margin(scores, _GOLD, b)
        fg.risk(scores, b)
        scores[0, ..., 0] = -np.inf  # selects the kernels that use logarithms
        fg.risk(scores, b)
        distribution = fg.StringDistribution(scores, b)
        distribution.marginals()
        distribution.sample(2, 0)
        distribution.mode()
        distribution.kbest(2)


def pairs_of_strings() -> None:
    """Compute losses and alignments of pairs of strings."""
    for loss in (fg.EditDistance(_ABC), fg.GlobalAlignment(_ABC, matrix=np.eye(3), gap_open=1.0)):
        loss.pairwise(["ab", "bc"], ["abc", "b"])
        loss.align("ab", "abc")
    fg.score(["a b"], ["a c"])
    fg.score(["a b"], ["{ a / b } c"], alternatives=True)


def lattices() -> None:
    """Compute objectives over lattices."""
    lattice = fg.Lattice.from_nbest(["ab", "abc"], [0.0, -1.0], _ABC)
    fg.softmax_margin(lattice, "ab", fg.EditDistance(_ABC))
    fg.risk(lattice, "ab", fg.EditDistance(_ABC))
    fg.mbr(lattice, fg.EditDistance(_ABC))


def models() -> None:
    """Train sequence models, and predict."""
    pairs = ["ab", "ba", "abc"]
    for alignment in ("em", "given"):
        model = fg.SequenceModel(fg.EditDistance(_ABC), alignment=alignment, epochs=1)
        model.fit(pairs, pairs)
        model.predict(pairs)


def trees() -> None:
    """Compute with spanning trees and projective trees."""
    scores = np.zeros((4, 4))
    for family in (fg.SpanningTrees, fg.ProjectiveTrees):
        trees = family(scores, single_root=True)
        trees.marginals()
        trees.entropy()
        trees.sample(2, 0)
        trees.kbest(2)
        trees.mode()


def random_fields() -> None:
    """Infer on a grid: exact, belief propagation, sampling, decoding."""
    model = fg.PairwiseMRF.grid(3, 3, node_scores=np.zeros((9, 2)), edge_scores=np.eye(2))
    model.marginals()
    model.infer("bp")
    model.infer("gibbs", samples=40, burn_in=1, rng=0)
    for method in ("max-product", "graph-cut", "icm"):
        model.decode(method)


def root_models() -> None:
    """Fit a root model of counts, and draw from it."""
    counts = np.random.default_rng(0).poisson(2.0, size=(30, 3))
    model = fg.GeneralizedRootModel(k=2, alpha=0.1).fit(counts)
    model.gibbs(2, 0, burn_in=1, thin=1)


def readme() -> None:
    """Run the first example."""
    exec(PYTHON.findall((ROOT / "README.md").read_text(encoding="utf-8"))[0], {})


def tensors() -> None:
    """Differentiate objectives of PyTorch, if it is installed."""
    try:
        import torch
    except ImportError:
        return
    import fstgrad.torch as fgt

    loss = fg.EditDistance(fg.Alphabet("acgt"))
    for shape in ((7, 4), (7, 5, 4)):
        scores = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
        for objective in (fgt.softmax_margin, fgt.risk):
            objective(scores, "gattaca", loss).backward()
    words = torch.zeros((2, 7, 4), requires_grad=True)
    fgt.risk(words, ["gattaca", "gatacat"], loss).sum().backward()
    crf = fgt.CRF(words, torch.zeros((4, 4)))
    crf.nll(torch.zeros((2, 7), dtype=torch.int64)).backward()
    crf.decode()
    layer, tags = fgt.nn.CRF(4, batch_first=True), torch.zeros((2, 7), dtype=torch.int64)
    (-layer(words, tags)).backward()
    layer.decode(words)
    fgt.ctc_nll(words, [[1, 2], [3]]).sum().backward()
    fgt.ctc_align(words, [[1, 2], [3]])
    trees = torch.zeros((2, 5, 5), dtype=torch.float64, requires_grad=True)
    fgt.spanning_tree_log_partition(trees, single_root=True).sum().backward()
    grid = fg.PairwiseMRF.grid(3, 3, node_scores=np.zeros((9, 2)), edge_scores=np.eye(2))
    pixels, labels = torch.zeros((2, 9, 2), requires_grad=True), torch.zeros((2, 9)).long()
    for method in ("pseudolikelihood", "bp"):
        fgt.mrf_nll(pixels, torch.eye(2), labels, grid, method=method).backward()


def ten_pairs() -> None:
    """Compute the gradient of ten pairs on the command line."""
    pairs = shlex.quote((ROOT / "data/cmudict2000.tsv").as_posix())
    _run(f"head -n 10 {pairs} | fstgrad grad - --tokens-y words")


def tasks() -> None:
    """Run the commands that docs/cli/tasks show, as far as the installed extras allow."""
    for page in PAGES:
        with contextlib.suppress(MissingDependencyError):
            _commands(page)


def _commands(page: pathlib.Path, *, up_to_first: bool = False) -> None:
    """Run the commands of a page in an empty folder; `up_to_first`: until the first of fstgrad."""
    lines = COMMAND.findall(page.read_text(encoding="utf-8"))
    first = next(i for i, line in enumerate(lines) if "fstgrad " in line)
    home = pathlib.Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for line in lines[: first + 1] if up_to_first else lines:
                _run(line)
        finally:
            os.chdir(home)


def _run(line: str) -> None:
    """Run a line of a shell, a command of fstgrad in this process."""
    from fstgrad.cli.main import main

    before, is_ours, command = line.rpartition("fstgrad ")
    if not is_ours:
        before = line.replace("python3", sys.executable)
    given = subprocess.run([BASH, "-c", before.rstrip("| ")], capture_output=True, check=True)
    if not is_ours:
        return
    read, written, messages = (
        io.TextIOWrapper(io.BytesIO(text), encoding="utf-8") for text in (given.stdout, b"", b"")
    )
    try:
        with (
            mock.patch.object(sys, "stdin", read),
            contextlib.redirect_stdout(written),
            contextlib.redirect_stderr(messages),
        ):
            main(shlex.split(re.sub(r" 2?> \S+", "", command), comments=True))
    except SystemExit as stop:
        messages.seek(0)
        told = messages.read()
        if "pip install" in told:
            raise MissingDependencyError(told) from stop
        if stop.code:
            raise RuntimeError(f"{line}: {told}") from stop
    if target := re.search(r" > (\S+)", command):
        written.flush()
        pathlib.Path(target[1]).write_bytes(written.buffer.getvalue())


STEPS: dict[str, Callable[[], None]] = {
    "strings, edit distance and alignments": edit_losses,
    "strings, n-grams": ngram_losses,
    "pairs of strings": pairs_of_strings,
    "lattices": lattices,
    "sequence models": models,
    "trees": trees,
    "random fields": random_fields,
    "root models": root_models,
    "the first example": readme,
    "tensors": tensors,
    "fstgrad grad, ten pairs": ten_pairs,
    "tasks of the command line": tasks,
}
# the first result of each task; `tasks` has them, too
FIRST_COMMANDS = {
    f"fstgrad, {page.stem}": functools.partial(_commands, page, up_to_first=True) for page in PAGES
}


if __name__ == "__main__":
    for step in STEPS.values():
        step()
