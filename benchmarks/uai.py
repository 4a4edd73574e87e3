"""UAI instances: marginals, labelings and bounds on log Z, against other programs.

The folder of instances is `$FSTGRAD_DATA/uai` (default: ../shared/data/uai beside the project).
The program adds two instances of kinds that are not in the folder: a dynamic Bayes net, and a model
with factors over three and six nodes.  The other programs, if installed, are pyAgrum for all
marginals (Shafer-Shenoy), opt_einsum for log Z (the same factors as one einsum), and toulbar2 for
the best labeling.

Every entry runs in a separate process with limits of LIMIT seconds and MEMORY bytes; "late" means
that it needed more, or failed.  The whole program ends within TOTAL seconds; entries that are left
then are late.  "seconds first" includes the plan, "again" is for new scores on the same graph, and
"eight" is for eight changes of evidence in a row, each of one variable.
"""

import multiprocessing
import os
import pathlib
import resource
import statistics
import time
from functools import partial

import numpy as np
from _harness import run, seconds_of

import fstgrad as fg
from fstgrad.mrf import uai

FOLDER = pathlib.Path(
    os.environ.get("FSTGRAD_DATA", pathlib.Path(__file__).parents[2] / "shared" / "data")
)
QUICK = ("CSP_12", "Grids_12", "Segmentation_12")
LIMIT = 30.0  # seconds per entry
MEMORY = 6 << 30  # bytes per entry, beyond those in use at its start
TOTAL = 840.0  # seconds for the whole program
LARGEST_EINSUM = 2**27  # cells
PROCESSES = multiprocessing.get_context("fork")
BEGUN = time.perf_counter()


def within(call, seconds=None):
    """Return the result of a call in a separate process; {} if it takes too long or fails."""
    left = TOTAL - (time.perf_counter() - BEGUN)
    seconds = min(LIMIT if seconds is None else seconds, max(left, 0.1))
    reader, writer = PROCESSES.Pipe(duplex=False)

    def work():
        used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        try:
            writer.send(call())
        except Exception as error:  # any library may raise any exception
            writer.send({"failed": f"{type(error).__name__}: {error}"})

    process = PROCESSES.Process(target=work)
    process.start()
    writer.close()
    try:
        found = reader.recv() if reader.poll(seconds) else {}
    except EOFError:  # a library ended the process
        found = {}
    process.kill()
    process.join()
    if "failed" in found:
        print(found["failed"])
        return {}
    return found


def dynamic_net(slices=30, seed=0):
    """Return a dynamic Bayes net: each slice has five binary variables and their sensors."""
    rng = np.random.default_rng(seed)
    sizes, factors = np.full(10 * slices, 2), []
    for t in range(slices):
        for k in range(5):
            v = 10 * t + k
            parents = [v - 10, 10 * (t - 1) + (k + 1) % 5] if t else []
            for scope in ([*parents, v], [v, v + 5]):
                table = rng.dirichlet(np.ones(2), size=(2,) * (len(scope) - 1))
                factors.append((scope, np.log(table)))
    evidence = {10 * t + 5 + k: int(rng.integers(2)) for t in range(slices) for k in range(5)}
    return uai.Model("MARKOV", sizes, factors), evidence


def ring_of_factors(nodes=60, seed=0):
    """Return a ring of nodes with two to four labels; factors join three or six neighbours."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 5, size=nodes)
    factors = []
    for i in range(nodes):
        scope = [(i + step) % nodes for step in range(6 if i % 6 == 0 else 3)]
        factors.append((scope, rng.normal(size=tuple(sizes[scope]))))
    return uai.Model("MARKOV", sizes, factors), {}


def instances(quick):
    """Yield (name, file, evidence) of each instance."""
    for path in sorted((FOLDER / "uai").glob("*.uai")):
        if not quick or path.stem in QUICK:
            file = uai.read_model(path)
            yield path.stem, file, uai.read_evidence(f"{path}.evid", file.sizes)
    yield "dynamic net", *dynamic_net()
    yield "ring of factors", *ring_of_factors()


def published(name, size):
    """Return log10 Z (text) and marginals (variables, labels) of the files; None without."""
    path = FOLDER / "uai" / f"{name}.uai"
    if not path.exists():
        return None, None
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


def eight_changes(file, evidence):
    """Return eight changes of evidence; each observes a possible label of a new variable."""
    model = file.to_mrf().condition(evidence)
    free = [v for v in range(model.num_nodes) if v not in evidence][:8]
    best = model.decode("trw").labels
    return [{v: int(best[v])} for v in free]


def median_of_fresh(make):
    """Return the median seconds of up to five calls from `make`; none starts after 3 s."""
    timings, end = [], time.perf_counter() + 3
    while len(timings) < 5 and (not timings or time.perf_counter() < end):
        timings.append(seconds_of(make()))
    return statistics.median(timings)


def first_marginals(file, evidence):
    """Time all marginals with and without the plan; return them too."""
    models = []

    def fresh():
        models.append(file.to_mrf().condition(evidence))
        return models[-1].marginals

    first = median_of_fresh(fresh)
    model = models[-1]
    node = model.marginals().node[: len(file.sizes)]
    plan = getattr(model.exact, "plan", None)
    return {
        "cells": 0 if plan is None else max(plan.cells),
        "first": first,
        "again": median_of_fresh(lambda: model.with_scores(*model.scores).marginals),
        "log10 Z": model.log_partition() / uai.LOG10,
        "node": node,
    }


def eight_marginals(file, evidence, changes):
    """Time the marginals given each of the changes, when the graph already has its plan."""
    model = file.to_mrf().condition(evidence)
    model.condition(changes[0]).marginals()
    return {"eight": seconds_of(lambda: [model.condition(c).marginals() for c in changes])}


def agrum(file, evidence, changes):
    """Time pyAgrum: all marginals, or with `changes` those given each of the changes."""
    import pyagrum

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

    def marginals(known, engine):
        engine.setEvidence({f"v{v}": value for v, value in known.items()})
        engine.makeInference()
        return [engine.posterior(f"v{v}").toarray() for v in range(len(file.sizes))]

    if changes is None:
        make = pyagrum.ShaferShenoyMRFInference
        return {"first": median_of_fresh(lambda: partial(marginals, evidence, make(net)))}
    engine = pyagrum.ShaferShenoyMRFInference(net)
    marginals(evidence, engine)
    given = [evidence | change for change in changes]
    return {"eight": seconds_of(lambda: [marginals(known, engine) for known in given])}


def einsum(file):
    """Time log Z by opt_einsum, without evidence: the competition's files have none."""
    import opt_einsum

    operands = []
    for scope, table in file.factors:
        operands += [np.exp(table - table.max()), list(scope)]
    best = None
    for optimize in ("auto", opt_einsum.RandomGreedy(max_repeats=32)):
        path, info = opt_einsum.contract_path(*operands, [], optimize=optimize)
        if best is None or info.opt_cost < best[1].opt_cost:
            best = path, info
    if best[1].largest_intermediate > LARGEST_EINSUM:
        return {}
    return {"log Z": seconds_of(lambda: opt_einsum.contract(*operands, [], optimize=best[0]))}


def marginal_rows(quick):
    for name, file, evidence in instances(quick):
        changes = eight_changes(file, evidence)
        mine = within(partial(first_marginals, file, evidence), 60)
        mine |= within(partial(eight_marginals, file, evidence, changes))
        peer = within(partial(agrum, file, evidence, None))
        if peer:
            peer |= within(partial(agrum, file, evidence, changes))
        pr, marginals = published(name, max(file.sizes))
        error = None
        if marginals is not None and "node" in mine:
            error = f"{np.abs(mine['node'] - marginals).max():.0e}"
        yield {
            "instance": name,
            "largest table": mine.get("cells"),
            "seconds first": mine.get("first", "late"),
            "seconds again": mine.get("again", "late"),
            "seconds eight": mine.get("eight", "late"),
            "seconds pyAgrum": peer.get("first", "late"),
            "seconds eight pyAgrum": peer.get("eight", "late"),
            "seconds log Z einsum": within(partial(einsum, file)).get("log Z", "late"),
            "PR": pr,
            "log10 Z": f"{mine['log10 Z']:.5f}" if mine else None,
            "MAR error": error,
        }


def best_labeling(file, evidence):
    """Time the labeling by sequential messages; return its score and gap too."""
    model = file.to_mrf().condition(evidence)
    begun = time.perf_counter()
    found = model.decode("trw")
    return {"seconds": time.perf_counter() - begun, "score": found.score, "gap": found.gap}


def toulbar2(file, evidence):
    """Time toulbar2; return the score of the labeling that it proves optimal."""
    import pytoulbar2

    problem = pytoulbar2.CFN(1e8, resolution=6)
    for v, size in enumerate(file.sizes.tolist()):
        problem.AddVariable(f"v{v}", [f"c{c}" for c in range(size)])
    constant = 0.0
    for scope, table in file.factors:
        top = float(np.max(table))
        constant += top
        if len(scope):
            costs = np.minimum(top - np.asarray(table), 1e6).ravel().tolist()
            problem.AddFunction([f"v{v}" for v in scope], costs)
    for v, value in evidence.items():
        hard = [0.0 if c == value else 1e6 for c in range(int(file.sizes[v]))]
        problem.AddFunction([f"v{v}"], hard)
    begun = time.perf_counter()
    found = problem.Solve()
    return {"seconds": time.perf_counter() - begun, "score": constant - found[1]}


def labeling_rows(quick):
    for name, file, evidence in instances(quick):
        mine = within(partial(best_labeling, file, evidence))
        proof = within(partial(exact_labeling, file, evidence))
        peer = within(partial(toulbar2, file, evidence))
        yield {
            "instance": name,
            "seconds MAP": mine.get("seconds", "late"),
            "score": mine.get("score"),
            "gap": mine.get("gap"),
            "seconds exact": proof.get("seconds", "late"),
            "exact": proof.get("score"),
            "seconds toulbar2": peer.get("seconds", "late"),
            "toulbar2": peer.get("score"),
        }


def exact_labeling(file, evidence):
    """Time the best labeling by elimination; return its score too."""
    model = file.to_mrf().condition(evidence)
    begun = time.perf_counter()
    score = model.score(model.mode())
    return {"seconds": time.perf_counter() - begun, "score": score}


def bracket(file, evidence, cells):
    """Time the bounds with tables of at most `cells` cells; return them too."""
    model = file.to_mrf().condition(evidence)
    begun = time.perf_counter()
    found = model.infer("bounds", max_cells=cells, max_seconds=10, tolerance=1e-6)
    return {
        "seconds": time.perf_counter() - begun,
        "width": found.upper - found.lower,
        "lower": found.lower / uai.LOG10,
        "upper": found.upper / uai.LOG10,
        "parts": found.parts,
    }


def loopy(file, evidence, method, marginals):
    """Return log10 Z and the largest error of marginals; * marks a run without convergence."""
    model = file.to_mrf().condition(evidence)
    found = model.infer(method, damping=0.5, max_iter=1000)
    mark = "" if found.converged else "*"
    error = np.abs(found.node[: len(file.sizes)] - marginals).max()
    return {
        "log10 Z": f"{found.log_partition / uai.LOG10:.6g}{mark}",
        "error": f"{error:.2g}{mark}",
    }


def bound_rows(quick):
    for name, file, evidence in instances(quick):
        narrow = within(partial(bracket, file, evidence, 4096))
        row = {
            "instance": name,
            "seconds bounds": narrow.get("seconds", "late"),
            "parts": narrow.get("parts"),
            "width": narrow.get("width"),
            "lower": narrow.get("lower"),
            "PR": published(name, max(file.sizes))[0],
            "upper": narrow.get("upper"),
        }
        marginals = published(name, max(file.sizes))[1]
        for method in ("bp", "trw") if marginals is not None else ():
            found = within(partial(loopy, file, evidence, method, marginals))
            row[f"{method} log10 Z"], row[f"{method} error"] = (
                found.get("log10 Z", "-"), found.get("error", "-"),
            )  # fmt: skip
        yield row


def rows(quick):
    factors = ring_of_factors(12)[0].to_mrf()
    for warm in (fg.PairwiseMRF.grid(2, 2, np.zeros((4, 2)), np.eye(2)), factors):
        warm.marginals(), warm.decode("trw")  # load the kernels
        warm.infer("bp"), warm.infer("trw"), warm.infer("bounds", max_cells=1, max_parts=2)
    yield from marginal_rows(quick)
    yield from labeling_rows(quick)
    yield from bound_rows(quick)


if __name__ == "__main__":
    run("uai: marginals, labelings and bounds on UAI 2014 instances", rows)
