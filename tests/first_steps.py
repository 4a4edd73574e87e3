"""What each kind of user does first: `python -m tests.first_steps`.

Wheels bring the kernels that these steps call compiled; `make kernels` records them.
"""

import pathlib
import re

import numpy as np

import conftest  # noqa: F401  (binds cli/ and grammars/)

ROOT = pathlib.Path(__file__).parents[1]
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def readme() -> None:
    """Run the first example."""
    exec(PYTHON.findall((ROOT / "README.md").read_text(encoding="utf-8"))[0], {})


def tensors() -> None:
    """Differentiate objectives of PyTorch, if it is installed."""
    try:
        import torch
    except ImportError:
        return
    import fstgrad as fg
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
    fgt.ctc_nll(words, [[1, 2], [3]]).sum().backward()
    trees = torch.zeros((2, 5, 5), dtype=torch.float64, requires_grad=True)
    fgt.spanning_tree_log_partition(trees, single_root=True).sum().backward()
    grid = fg.PairwiseMRF.grid(3, 3, node_scores=np.zeros((9, 2)), edge_scores=np.eye(2))
    pixels, labels = torch.zeros((2, 9, 2), requires_grad=True), torch.zeros((2, 9)).long()
    for method in ("pseudolikelihood", "bp"):
        fgt.mrf_nll(pixels, torch.eye(2), labels, grid, method=method).backward()


def main() -> None:
    """Run all first steps."""
    from fstgrad.cli.warm import STEPS

    for step in (*STEPS.values(), readme, tensors):
        step()


if __name__ == "__main__":
    main()
