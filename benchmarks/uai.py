"""UAI instances: exact elimination against the published results, and the error of BP.

The folder of instances is `$FSTGRAD_DATA/uai` (default: ../shared/data/uai beside the project).
Competitors in the same run, where they are installed: opt_einsum for log Z (the same factors as one
einsum, in the order of its `auto` optimizer and of its random-greedy search), pyAgrum for all
marginals (Shafer-Shenoy), toulbar2 for the best labeling (20 seconds).  `eight` is eight changes of
evidence in a row, one variable each.  Seconds are those of a call after the first, plans included
in `seconds first`.
"""

import os
import pathlib
from functools import partial

import numpy as np
from _harness import run, seconds_of

import fstgrad as fg
from fstgrad.errors import InfeasibleError, MemoryLimitError
from fstgrad.mrf import uai
from fstgrad.mrf.exact.engine import exact

FOLDER = pathlib.Path(
    os.environ.get("FSTGRAD_DATA", pathlib.Path(__file__).parents[2] / "shared" / "data")
)
QUICK = ("CSP_12", "Grids_12", "Segmentation_12")
LARGEST_EINSUM = 2**27  # cells
LARGEST_AGRUM = 2**22  # cells of a clique; above it takes minutes


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


def agrum(file, evidence, labels):
    """Return seconds of all marginals by pyAgrum, and of eight changes of evidence."""
    try:
        import pyagrum
    except ImportError:
        return None, None
    net = pyagrum.MarkovRandomField()
    for v, size in enumerate(file.sizes.tolist()):
        net.add(pyagrum.LabelizedVariable(f"v{v}", "", size))
    tables = {}
    for scope, table in file.factors:
        if len(scope):
            key = tuple(sorted(scope))
            tables[key] = tables.get(key, 0) + np.transpose(table, np.argsort(scope))
    for scope, table in tables.items():
        weights = np.exp(table - table.max())
        net.addFactor([f"v{v}" for v in scope]).fillWith(weights.ravel(order="F").tolist())
    engine = pyagrum.ShaferShenoyMRFInference(net)

    def marginals(known):
        engine.setEvidence({f"v{v}": value for v, value in known.items()})
        engine.makeInference()
        return [engine.posterior(f"v{v}").toarray() for v in range(len(file.sizes))]

    first = seconds_of(lambda: marginals(evidence))
    return first, seconds_of(lambda: [marginals(evidence | change) for change in labels])


def eight_changes(model, evidence):
    """Return eight changes of evidence, each a possible label of one more variable."""
    free = [v for v in range(model.num_nodes) if v not in evidence][:8]
    best = model.mode()
    return [{v: int(best[v])} for v in free]


def given_each(model, changes):
    """Return the marginals given each of the changes."""
    return [model.condition(change).marginals() for change in changes]


def toulbar2(path, sizes, evidence):
    """Return the best log10 score that toulbar2 finds in 20 seconds, None without it."""
    try:
        import pytoulbar2
    except ImportError:
        return None
    problem = pytoulbar2.CFN(1e8, resolution=6)
    file = uai.read_model(path)
    for v, size in enumerate(sizes.tolist()):
        problem.AddVariable(f"v{v}", [f"c{c}" for c in range(size)])
    constant = 0.0
    for scope, table in file.factors:
        top = float(np.max(table))
        constant += top
        costs = np.minimum(top - np.asarray(table), 1e6).ravel().tolist()
        if len(scope):
            problem.AddFunction([f"v{v}" for v in scope], costs)
    for v, value in evidence.items():
        hard = [0.0 if c == value else 1e6 for c in range(int(sizes[v]))]
        problem.AddFunction([f"v{v}"], hard)
    found = problem.Solve(timeLimit=20)
    return None if found is None else (constant - found[1]) / uai.LOG10


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
        evidence = uai.read_evidence(f"{path}.evid", file.sizes)
        try:
            row["seconds first"] = seconds_of(model.marginals)
            model = model.with_scores(*model.scores)
            row["seconds log Z"] = seconds_of(model.log_partition)
            row["log10 Z"] = uai.format_partition(model.log_partition()).split()[1]
            row["seconds marginals"] = seconds_of(model.marginals)
            changes = eight_changes(model, evidence)
            row["eight"] = seconds_of(partial(given_each, model, changes))
            if max(exact(model).engine.plan.cells) <= LARGEST_AGRUM:
                row["seconds pyAgrum"], row["eight pyAgrum"] = agrum(file, evidence, changes)
                row["pyAgrum / fstgrad"] = row["seconds pyAgrum"] / row["seconds first"]
            row["MAR error"] = f"{np.abs(model.marginals().node[:count] - marginals).max():.1e}"
        except MemoryLimitError as error:
            print(error)
            continue
        row["MAP log10"] = model.score(model.mode()) / uai.LOG10
        row["MAP toulbar2"] = toulbar2(path, file.sizes, evidence)
        for cells in (0, 4096):
            found = model.infer("bounds", max_cells=cells, max_seconds=10, tolerance=1e-6)
            row[f"width, {cells} cells"] = found.upper - found.lower
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
