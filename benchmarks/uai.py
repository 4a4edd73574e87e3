"""UAI instances: exact elimination against the published results, and the error of BP.

The folder of instances is `$FSTGRAD_DATA/uai` (default: ../shared/data/uai beside the project).
The competitor for log Z is opt_einsum: the same factors contracted as one einsum, in the order of
its `auto` optimizer and of its random-greedy search; its sums leave no room for large scores.
"""

import os
import pathlib

import numpy as np
from _harness import run, seconds_of

import fstgrad as fg
from fstgrad.errors import InfeasibleError, MemoryLimitError
from fstgrad.mrf import uai

FOLDER = pathlib.Path(
    os.environ.get("FSTGRAD_DATA", pathlib.Path(__file__).parents[2] / "shared" / "data")
)
QUICK = ("CSP_12", "Grids_12", "Segmentation_12")
LARGEST_EINSUM = 2**27  # cells


def published(path, size):
    """Return log10 Z and marginals (variables, labels) as the files give them."""
    pr = (path.parent / f"{path.name}.PR").read_text().split()[1]
    words = (path.parent / f"{path.name}.MAR").read_text().split()[2:]
    rows, at = [], 0
    while at < len(words):
        count = int(words[at])
        row = np.zeros(size)
        row[:count] = [float(w) for w in words[at + 1 : at + 1 + count]]
        rows.append(row)
        at += 1 + count
    return pr, np.array(rows)


def einsum(file):
    """Return seconds and log10 Z by opt_einsum, (None, None) where it is too wide for it."""
    import opt_einsum

    operands = []
    shift = 0.0
    for scope, table in file.factors:
        top = table.max()
        shift += top
        operands += [np.exp(table - top), list(scope)]
    best = None
    for optimize in ("auto", opt_einsum.RandomGreedy(max_repeats=32)):
        path, info = opt_einsum.contract_path(*operands, [], optimize=optimize)
        if best is None or info.opt_cost < best[1].opt_cost:
            best = path, info
    if best[1].largest_intermediate > LARGEST_EINSUM:
        return None, None
    value = []
    seconds = seconds_of(lambda: value.append(opt_einsum.contract(*operands, [], optimize=best[0])))
    with np.errstate(divide="ignore"):
        return seconds, (np.log(value[0]) + shift) / uai.LOG10


def rows(quick):
    warm = fg.PairwiseMRF.grid(2, 2, np.zeros((4, 2)), np.eye(2))  # load the kernels
    warm.log_partition(), warm.marginals(), warm.infer("trw")
    for path in sorted((FOLDER / "uai").glob("*.uai")):
        if quick and path.stem not in QUICK:
            continue
        file = uai.read_model(path)
        model = file.to_mrf().condition(uai.read_evidence(f"{path}.evid", file.sizes))
        count = len(file.sizes)
        pr, marginals = published(path, model.num_labels)
        row = {"instance": path.stem, "PR": pr}
        try:
            row["seconds log Z"] = seconds_of(model.log_partition)
            row["log10 Z"] = uai.format_partition(model.log_partition()).split()[1]
            row["seconds marginals"] = seconds_of(model.marginals)
            row["MAR error"] = f"{np.abs(model.marginals().node[:count] - marginals).max():.1e}"
        except MemoryLimitError as error:
            print(error)
            continue
        row["seconds einsum"], other = einsum(file)
        row["einsum"] = "too wide" if other is None else f"{other:.6g}"
        for name, options in (
            ("BP", {"damping": 0.5, "max_iter": 1000}),
            ("TRW", {"max_iter": 1000}),
        ):
            try:
                found = model.infer(name.lower(), **options)
            except InfeasibleError:
                row[f"{name} log10 Z"] = row[f"{name} MAR error"] = "-"
                continue
            mark = "" if found.converged else "*"
            row[f"{name} log10 Z"] = f"{found.log_partition / uai.LOG10:.6g}{mark}"
            error = np.abs(found.node[:count] - marginals).max()
            row[f"{name} MAR error"] = f"{error:.2g}{mark}"
        yield row


if __name__ == "__main__":
    run("uai: exact elimination, BP and TRW on UAI 2014 instances (* did not converge)", rows)
