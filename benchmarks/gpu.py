"""What runs on a GPU: equal to the CPU, the same bits every time, and how long a step takes.

Run it on a CPU beforehand, so that nothing is compiled where the GPU is, and then there:

    python benchmarks/gpu.py --make-reference FILE
    python benchmarks/gpu.py --reference FILE --minutes 6 [--json FILE]

It needs the checkout, PyTorch and numba.  First each objective is compared with the reference: at
float64 to 1e-10, at float32 to 1e-5 of its size, in 20 repeats with the same bits, and nothing may
wait for the device (`torch.cuda.set_sync_debug_mode`).  Then steps (value and gradient) are timed,
the chains, CTC and edit losses first, as far as the minutes go.  "ratio" is the time of others
divided by ours, "operations of PyTorch" that of ours without kernels of Triton.  Last,
compute-sanitizer, if it is installed, looks for races and wrong addresses.  The JSON file is
written after every row.

`--device cpu` runs the same operations on the CPU (`fstgrad.torch.use_device_paths`), `--quick` at
tiny sizes.
"""

import argparse
import contextlib
import functools
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from _harness import environment

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

import fstgrad as fg
import fstgrad.torch as fgt
from fstgrad.losses.automata.automaton import Level, LossAutomaton
from fstgrad.torch.fused.available import fused

REPEATS = 20
PHONES = fg.Alphabet([f"p{i}" for i in range(39)])


def crf(sizes, rng):
    """Emissions (B, T, n), transitions; a quarter of the positions is left out."""
    batch, length, n = sizes
    tags = torch.from_numpy(rng.integers(n, size=(batch, length)))
    tags[torch.from_numpy(rng.random((batch, length)) < 0.25)] = -100
    tags[:, 0] = 0
    given = [rng.normal(size=(batch, length, n)), rng.normal(size=(n, n))]
    moved = functools.cache(tags.to)
    return given, lambda e, t: fgt.linear_chain_nll(e, t, moved(e.device), reduction="none")


def ctc(sizes, rng):
    """Frames (B, T, n) and targets of a sixth of their number; label 0 is the blank."""
    batch, length, n = sizes
    gold = torch.from_numpy(rng.integers(1, n, size=(batch, max(1, length // 6))))
    return [rng.normal(size=sizes)], lambda s: fgt.ctc_nll(s, gold, reduction="none")


def words(sizes, rng, automata, function):
    """Words of phones under the edit distance: pairs of phones, automata compiled beforehand."""
    batch, length, n = sizes
    golds = rng.integers(n, size=(batch, length))
    losses = automata(golds)
    call = getattr(fgt, function)
    scores = [rng.normal(size=(batch, length, n + 1, n))]
    return scores, lambda s: call(s, torch.from_numpy(golds), losses, reduction="none")


def trees(sizes, rng, function="log_partition"):
    """Scores of arcs (B, n + 1, n + 1)."""
    call = getattr(fgt, f"spanning_tree_{function}")
    given = 3 * rng.normal(size=(sizes[0], sizes[1] + 1, sizes[1] + 1))
    return [given], lambda s: call(s, single_root=True)


def entropies(sizes, rng):
    """Scores as in `trees`."""
    return trees(sizes, rng, "entropy")


def grid(sizes, rng):
    """Pixels with labels; belief propagation for a fixed number of sweeps."""
    height, width, n = sizes
    nodes, edges = rng.normal(size=(1, n, height, width)), 0.3 * rng.normal(size=(n, n))
    graph = fg.PairwiseMRF.grid(height, width, np.zeros((height * width, n)), np.zeros((n, n)))
    gold = torch.from_numpy(rng.integers(n, size=(1, height, width)))
    options = {"method": "bp", "max_iter": 50, "tol": 1e-12, "damping": 0.5}

    def call(node, edge):
        return fgt.mrf_nll(node, edge, gold, graph, reduction="none", **options)

    return [nodes, edges], call


def lists(sizes, rng):
    """Lists of hypotheses with scores (B, N)."""
    hypotheses = torch.from_numpy(rng.integers(39, size=(*sizes, 7)))
    loss = fg.EditDistance(PHONES)
    given = [rng.normal(size=sizes)]
    return given, lambda s: fgt.nbest_risk(s, hypotheses, hypotheses[:, 0], loss, reduction="none")


class Case(NamedTuple):
    """A function above, the sizes of the checks, those of the timings, and those of --quick."""

    make: Callable
    checks: list
    times: list
    quick: tuple


BIG = [(64, 100, 50), (64, 100, 128), (64, 100, 1000)]
CASES = {
    "CRF": Case(crf, [(5, 17, 9), (2, 1, 3), (3, 9, 100), (2, 6, 300)], BIG, (4, 8, 5)),
    "CTC": Case(ctc, [(4, 30, 6)], [(8, 1500, 30)], (2, 12, 4)),
    "edit margin": Case(words, [(6, 7, 39)], [(64, 7, 39)], (3, 4, 39)),
    "edit risk": Case(words, [(6, 7, 39)], [(64, 7, 39)], (3, 4, 39)),
    "trees": Case(trees, [(5, 9), (2, 64), (2, 70)], [(64, 40)], (3, 5)),
    "entropy of trees": Case(entropies, [(5, 9)], [(64, 40)], (3, 5)),
    "belief propagation": Case(grid, [(6, 7, 3)], [(256, 256, 10)], (4, 4, 2)),
    "n-best risk": Case(lists, [(4, 5)], [(64, 16)], (2, 3)),
}
FUNCTIONS = {"edit margin": "softmax_margin", "edit risk": "risk"}


class Reference:
    """Values, gradients and automata of an .npz file, or computed here and kept in `arrays`."""

    def __init__(self, path):
        self.arrays = dict(np.load(path)) if path else {}
        self.is_given = path is not None

    def automata(self, golds):
        """Return the automata of the edit distance of words."""
        return [self._automaton(gold) for gold in golds]

    def _automaton(self, gold):
        key = "automaton " + "-".join(map(str, gold))
        if f"{key} final" not in self.arrays:
            if self.is_given:
                raise SystemExit(f"the reference has no {key}; make it again, with these sizes")
            b = fg.EditDistance(PHONES).compile(gold)
            self.arrays |= {f"{key} final": b.final, f"{key} classes": b.class_of}
            for t, level in enumerate(b.levels):
                self.arrays |= {f"{key} to {t}": level.nextstate, f"{key} cost {t}": level.cost}
        levels = tuple(
            Level(self.arrays[f"{key} to {t}"], self.arrays[f"{key} cost {t}"])
            for t in range(len(gold))
        )
        known = self.arrays[f"{key} classes"], levels, 0.0, self.arrays[f"{key} final"]
        return LossAutomaton(PHONES, *known)

    def case(self, name, sizes):
        """Return the arrays of scores of a case and its function of tensors."""
        make, rng = CASES[name].make, np.random.default_rng(sum(map(ord, name)) + sum(sizes))
        if name in FUNCTIONS:
            return make(sizes, rng, self.automata, FUNCTIONS[name])
        return make(sizes, rng)

    def results(self, name, sizes):
        """Return the values and the gradients of the compiled passes at float64."""
        key = f"{name} {sizes}"
        if f"{key} 0" not in self.arrays:
            given, call = self.case(name, sizes)
            found = step(call, [torch.tensor(table, requires_grad=True) for table in given])
            self.arrays |= {f"{key} {i}": table.numpy() for i, table in enumerate(found)}
        names = sorted(k for k in self.arrays if k.startswith(f"{key} "))
        return [torch.from_numpy(self.arrays[k]) for k in names]


def step(call, scores):
    """Return the values and gradients."""
    values = call(*scores)
    return [values.detach(), *torch.autograd.grad(values.sum(), scores)]


@contextlib.contextmanager
def on(device):
    """Compute on the device, and raise an error if something waits for a GPU."""
    if device == "cpu":
        with fgt.use_device_paths():
            yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def check(name, sizes, reference, device):
    """Return a row: the largest errors, and whether all repeats gave the same bits."""
    expected = reference.results(name, sizes)
    given, call = reference.case(name, sizes)
    row = {"case": name, "sizes": str(sizes)}
    for dtype, most in ((torch.float64, 1e-10), (torch.float32, 1e-5)):
        scores = [torch.tensor(t, dtype=dtype, device=device, requires_grad=True) for t in given]
        step(call, scores)  # packs what stays on the device
        with on(device) if device != "cpu" else fgt.use_device_paths():
            found = [step(call, scores) for _ in range(REPEATS)]
        first = [table.cpu() for table in found[0]]
        same = all(
            torch.equal(a.cpu(), b) for other in found for a, b in zip(other, first, strict=True)
        )
        size = [max(1.0, float(table.abs().max())) for table in expected]
        errors = [
            float((mine.double() - other).abs().max()) / scale
            for mine, other, scale in zip(first, expected, size, strict=True)
        ]
        label = str(dtype).removeprefix("torch.")
        row |= {f"error {label}": max(errors), f"ok {label}": bool(same and max(errors) <= most)}
    return row


def seconds(call, scores, device):
    """Return the median seconds of a step, of 5 or more after two warm-ups."""
    timings = []
    for i in range(7):
        start = time.perf_counter()
        step(call, scores)
        if device != "cpu":
            torch.cuda.synchronize()
        timings.append(time.perf_counter() - start)
        if i >= 2 and sum(timings) > 30:
            break
    return statistics.median(timings[2:])


def others(name, sizes, scores, call):
    """Yield (name, function of the scores): packages that can be imported, and our CPU kernels."""
    if name == "CTC":
        gold = torch.ones(
            sizes[0], max(1, sizes[1] // 6), dtype=torch.long, device=scores[0].device
        )
        lengths = [torch.full((sizes[0],), n) for n in (sizes[1], gold.shape[1])]

        def by_torch(s):
            log_p = s.float().log_softmax(2).transpose(0, 1)
            return torch.nn.functional.ctc_loss(log_p, gold, *lengths, reduction="none")

        yield "PyTorch", by_torch
    if name == "CRF":
        tags = torch.zeros(sizes[:2], dtype=torch.long, device=scores[0].device)
        with contextlib.suppress(ImportError):
            from torchcrf import CRF

            layer = CRF(sizes[2], batch_first=True).to(scores[0])
            yield "pytorch-crf", lambda e, t: layer(e, tags, reduction="none") + 0.0 * t.sum()
        with contextlib.suppress(ImportError):
            from torch_struct import LinearChainCRF

            yield (
                "torch-struct",
                lambda e, t: LinearChainCRF((e[:, 1:, :, None] + t.t()).contiguous()).partition,
            )
    if name == "trees":
        with contextlib.suppress(ImportError):
            from torch_struct import NonProjectiveDependencyCRF

            yield "torch-struct", lambda s: NonProjectiveDependencyCRF(s[:, 1:, 1:]).partition
    device = scores[0].device
    if fused(scores[0]):
        yield "operations of PyTorch", unfused(call)
    yield "compiled passes", lambda *s: call(*(t.cpu() for t in s)).to(device)


def unfused(call):
    """Return a function that computes without kernels of Triton."""

    def computed(*scores):
        os.environ["FSTGRAD_FUSED"] = "0"
        try:
            return call(*scores)
        finally:
            del os.environ["FSTGRAD_FUSED"]

    return computed


def sanitized():
    """Yield rows of compute-sanitizer, if it is installed, on the checks at tiny sizes."""
    tool = shutil.which("compute-sanitizer")
    for name in ("racecheck", "memcheck") if tool else ():
        command = [str(tool), "--tool", name, "--error-exitcode", "3", sys.executable, __file__]
        done = subprocess.run(
            [*command, "--quick", "--minutes", "2", "--only-checks"],
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        yield {"case": name, "ok": done.returncode == 0, "output": done.stdout[-300:]}


def timings(name, sizes, reference, device, left):
    """Yield rows of the times of a step in three dtypes, and of other packages at float32."""
    given, call = reference.case(name, sizes)
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        if left() <= 0:
            return
        scores = [torch.tensor(t, dtype=dtype, device=device, requires_grad=True) for t in given]
        with fgt.use_device_paths() if device == "cpu" else contextlib.nullcontext():
            own = seconds(call, scores, device)
        label = str(dtype).removeprefix("torch.")
        row = {"case": name, "sizes": str(sizes), "dtype": label, "seconds": own}
        if dtype == torch.float32:
            for other, function in others(name, sizes, scores, call):
                if left() > 0:
                    row[f"ratio {other}"] = seconds(function, scores, device) / own
        yield row


def main():
    """Check, then time, and write what is known so far after every row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--make-reference", metavar="FILE", help="write an .npz file and stop")
    parser.add_argument("--reference", metavar="FILE", help="read it; default: compute it here")
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--quick", action="store_true", help="tiny sizes")
    parser.add_argument("--only-checks", action="store_true", help="no times")
    parser.add_argument("--json", metavar="FILE")
    given = parser.parse_args()
    reference, end = Reference(given.reference), time.monotonic() + 60 * given.minutes
    checks = {name: [c.quick] if given.quick else c.checks for name, c in CASES.items()}
    times = {name: [c.quick] if given.quick else c.times for name, c in CASES.items()}
    if given.make_reference:
        for name in CASES:
            for sizes in checks[name]:
                reference.results(name, sizes)
            for sizes in times[name] if name in FUNCTIONS else ():
                reference.case(name, sizes)
        np.savez_compressed(given.make_reference, **reference.arrays)
        return 0
    card = torch.cuda.get_device_name() if given.device != "cpu" else "CPU"
    known: dict[str, Any] = {"title": "gpu", "card": card, **environment(), "rows": []}

    def add(row):
        known["rows"].append(row)
        cells = (f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in row.items())
        print("  ".join(cells), flush=True)
        if given.json:
            Path(given.json).write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")

    print(card)
    left = lambda: end - time.monotonic()  # noqa: E731
    for is_check, wanted in ((True, checks), (False, {} if given.only_checks else times)):
        for name, sizes in ((name, sizes) for name, every in wanted.items() for sizes in every):
            try:
                if is_check and left() > 0:
                    add(check(name, sizes, reference, given.device))
                elif left() > 0:
                    for row in timings(name, sizes, reference, given.device, left):
                        add(row)
            except (RuntimeError, fg.FstgradError) as error:  # the next case may run
                add({"case": name, "sizes": str(sizes), "error": str(error)[:500]})
    if not given.quick and left() > 0:
        for row in sanitized():
            add(row)
    wrong = [r for r in known["rows"] if "error" in r or any(v is False for v in r.values())]
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
