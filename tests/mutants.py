"""Which defects the tests would miss: `python -m tests.mutants --sample 300`, or `make mutants`.

A mutant is the package with one small defect: a comparison that excludes its bound, a plus for a
minus, a condition turned round, a statement left out (`tests/mutant_places.py`).  Mutants are
sampled from all such places outside the compiled kernels, or with --kernels from those inside; an
edited kernel is compiled again by itself.  For each mutant the tests that reach its line, or a call
of its kernel, are run: those of its package, then the others, quick ones first, half a minute of
each.  A mutant under which all of them pass has survived; survivors are printed with their line.
`tests/equivalent_mutants.txt` lists those that change nothing, with the reason.  What the tests
reach and what became of each mutant are kept in build/mutants until a source changes.

mutmut leaves out decorated functions, which here are most, and cosmic-ray runs one command for all
mutants; neither samples.  Hence this program, on coverage's contexts.
"""

import argparse
import concurrent.futures
import contextlib
import hashlib
import importlib
import itertools
import json
import math
import multiprocessing
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator

from tests.mutant_kernels import calls
from tests.mutant_places import ROOT, Mutant, mutants_of

EQUIVALENT = ROOT / "tests/equivalent_mutants.txt"
FOLDERS = ("fstgrad", "cli", "grammars")
COPIED = (*FOLDERS, "tests", "data", "examples", "benchmarks", "docs")
FILES = ("conftest.py", "pyproject.toml", "setup.cfg", "README.md", "CHANGELOG.md", "Makefile")
MEMORY = 12 * 2**30
SECONDS = 30.0  # of tests for a mutant, in each stage
PATIENCE = 30.0  # seconds beyond three times what the tests take, before a mutant hangs
COMPILATION = 120.0  # more of them for a mutant that is compiled
KILLED = ("killed", "timeout")
IDLE = 5  # wall-clock seconds for each second of processor time, before a mutant sleeps


class Reach:
    """Which tests reach a line, and how long each test takes; measured folder by folder of tests.

    Each measurement is kept under a digest of the folder's files, so that a later run measures the
    changed ones alone.
    """

    def __init__(self, tree: pathlib.Path) -> None:
        self.tree = tree
        self.durations: dict[str, float] = {}
        self.lines: dict[str, dict[int, set[str]]] = {}

    def add(self, groups: Iterable[str], jobs: int, deadline: float) -> None:
        """Measure groups of tests, so many at a time, or read what an earlier run measured."""

        def report(tests: str) -> dict[str, dict]:
            kept = self.tree.parent / f"reach-{slug(tests)}-{digest(self.tree / tests)}.json"
            if not kept.exists():
                if time.monotonic() > deadline:
                    sys.exit("stopped while measuring what the tests reach; the next run goes on")
                kept.write_text(json.dumps(self._measured(tests)))
            return json.loads(kept.read_text())

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for found in pool.map(report, groups):
                self.durations |= found["durations"]
                for path, lines in found["lines"].items():
                    reached = self.lines.setdefault(path, {})
                    for line, names in lines.items():
                        reached.setdefault(int(line), set()).update(names)

    def _measured(self, tests: str) -> dict[str, object]:
        data_file = self.tree / f"reach-{slug(tests)}"
        log = self.tree / f"durations-{slug(tests)}.json"
        environment = {**os.environ, "COVERAGE_FILE": str(data_file), "MUTANTS_LOG": str(log)}
        measured = [f"--cov={name}" for name in FOLDERS]
        command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants",
                   *measured, "--cov-context=test", "--cov-report=", tests]  # fmt: skip
        limit = f'ulimit -v {MEMORY // 1024} && exec "$@"'  # what fails under it is left out
        command = ["bash", "-c", limit, "bash", sys.executable, *command]
        subprocess.run(command, cwd=self.tree, env=environment, check=False)
        from coverage import CoverageData

        data = CoverageData(str(data_file))
        data.read()
        lines = {}
        for file in data.measured_files():
            name = os.path.relpath(os.path.realpath(file), os.path.realpath(self.tree))
            contexts = data.contexts_by_lineno(file)
            lines[name] = {
                line: [context.split("|")[0] for context in found if context]
                for line, found in contexts.items()
            }
        return {"durations": json.loads(log.read_text()), "lines": lines}

    def tests_of(self, mutant: Mutant) -> list[list[str]]:
        """Return the tests that reach the mutant's line in stages, quick ones first.

        The tests of the package itself come first, those of the file of the same name at their
        head; then all others.  A line that runs at import is reached by all tests of its package,
        whatever they run, and by those of the signatures.  Last come the other tests of the same
        files, which may read a result that one of the first left in a cache.  A stage ends with
        the test that passes SECONDS in total.
        """
        lines = self.lines.get(mutant.path, {})
        reached = (self.lines.get(path, {}).get(line, ()) for path, line in calls(mutant))
        tests = {test for found in reached for test in found}
        path = pathlib.PurePath(mutant.path)
        package = [part for part in path.parts[:-1] if part != "fstgrad"][:1]
        own = "/".join(["tests", *package, ""])
        if mutant.at_import and lines:
            tests = {test for found in lines.values() for test in found}
            tests |= {test for test in self.durations if package and test.startswith(own)}
        same_name = re.compile(rf"test_{path.stem.strip('_')}\b")
        known = tests & self.durations.keys()
        order = sorted(known, key=lambda t: (not same_name.search(t), self.durations[t]))
        stages = [
            [test for test in order if test.startswith(own) == is_own] for is_own in (True, False)
        ]
        if mutant.at_import:
            stages.append([test for test in self.durations if "test_signatures" in test])
        files = {test.split("::")[0] for test in known}
        beside = {test for test in self.durations if test.split("::")[0] in files} - known
        stages.append(sorted(beside, key=self.durations.__getitem__))
        return [self._affordable(stage) for stage in stages if stage]

    def _affordable(self, tests: list[str]) -> list[str]:
        total = list(itertools.accumulate(self.durations[test] for test in tests))
        return tests[: 1 + sum(seconds < SECONDS for seconds in total)]


def slug(tests: str) -> str:
    """Return the name of a folder or file of tests as a part of a file name."""
    return tests.replace("/", "-")


def digest(folder: pathlib.Path) -> str:
    """Return a digest of the sources below a folder, or of one file."""
    files = sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]
    whole = hashlib.sha256()
    for path in files:
        whole.update(str(path.relative_to(folder.parent)).encode() + path.read_bytes())
    return whole.hexdigest()[:16]


def pytest_runtest_logreport(report: object) -> None:
    """Note the duration of a test (as a plugin of pytest, in the run that measures coverage)."""
    durations = _DURATIONS
    if report.outcome == "failed":
        _FAILED.add(report.nodeid)
    durations[report.nodeid] = durations.get(report.nodeid, 0.0) + report.duration


def pytest_sessionfinish() -> None:
    """Write the durations of the tests that pass."""
    if "MUTANTS_LOG" in os.environ:
        passed = {test: time for test, time in _DURATIONS.items() if test not in _FAILED}
        pathlib.Path(os.environ["MUTANTS_LOG"]).write_text(json.dumps(passed))


_DURATIONS: dict[str, float] = {}
_FAILED: set[str] = set()


def outcome(tree: pathlib.Path, tests: list[str], seconds: float) -> str:
    """Run the tests in a child process: "killed", "survived" or "timeout".

    The limit is on processor time, so that other work on the machine does not make a timeout.
    """
    child = os.fork()
    if child == 0:
        _run_tests(tree, tests, math.ceil(seconds))
    deadline = time.monotonic() + IDLE * seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done and os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU:
            return "timeout"
        if done:
            return "survived" if status == 0 else "killed"
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "timeout"


def _run_tests(tree: pathlib.Path, tests: list[str], seconds: int) -> None:
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        os.chdir(tree)
        sys.path[:1] = [str(tree)]  # the folder of this program was there
        for name in [name for name in sys.modules if name.split(".")[0] == "tests"]:
            del sys.modules[name]
        import pytest

        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
    finally:
        os._exit(code)


def copy_of_the_tree(tree: pathlib.Path) -> pathlib.Path:
    """Copy what the tests need; if a source changed, what is kept beside the copy goes."""
    if any(not (tree / n).exists() or digest(tree / n) != digest(ROOT / n) for n in FOLDERS):
        shutil.rmtree(tree.parent, ignore_errors=True)
    for name in COPIED:
        if name not in FOLDERS or not (tree / name).exists():
            shutil.rmtree(tree / name, ignore_errors=True)
            shutil.copytree(ROOT / name, tree / name)
    for name in FILES:
        shutil.copy(ROOT / name, tree / name)
    return tree


def use_kernels(folder: pathlib.Path) -> None:
    """Let the tests begin with the kernels that are compiled, and leave those of mutants here."""
    if not folder.exists():  # asked in a process of its own: this one must not load the package
        code = "from fstgrad.core.kernel_cache import cache_folder; print(cache_folder() or '')"
        known = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, check=True)
        if place := known.stdout.decode().strip():
            shutil.copytree(place, folder)
    os.environ["NUMBA_CACHE_DIR"] = str(folder)


@contextlib.contextmanager
def planted(tree: pathlib.Path, mutant: Mutant) -> Iterator[None]:
    """Write the mutant into the copy, and take it out again."""
    path = tree / mutant.path
    whole, status = path.read_bytes(), path.stat()
    path.write_bytes(whole[: mutant.start] + mutant.new.encode() + whole[mutant.stop :])
    try:
        yield
    finally:
        path.write_bytes(whole)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def verdict(tree: pathlib.Path, mutant: Mutant, reach: Reach) -> str:
    """Return what the tests say of a mutant."""
    stages = reach.tests_of(mutant)
    for tests in stages:
        expected = sum(reach.durations[test] for test in tests)
        with planted(tree, mutant):
            patience = PATIENCE + COMPILATION * mutant.is_kernel
            result = outcome(tree, tests, 3 * expected + patience)
        if result != "survived":
            return result
    return "survived" if stages else "unreached"


def verdicts(
    mutants: list[Mutant], reach: Reach, folder: pathlib.Path, jobs: int, deadline: float
) -> Iterator[tuple[Mutant, str]]:
    """Yield mutants with what the tests say of them, until the deadline.

    Each of the processes has a copy of the tree of its own.
    """
    context = multiprocessing.get_context("fork")  # with all that is loaded
    trees = context.SimpleQueue()
    for job in range(jobs):
        trees.put(copy_of_the_tree(folder / f"job-{job}" / "tree"))
    with context.Pool(jobs, _begin, (trees, reach, deadline)) as pool:
        for mutant, result in zip(mutants, pool.imap(_try, mutants), strict=True):
            if result:
                yield mutant, result


def _begin(*work: object) -> None:
    trees, *rest = work
    _WORK[:] = [trees.get(), *rest]


def _try(mutant: Mutant) -> str:
    tree, reach, deadline = _WORK
    return verdict(tree, mutant, reach) if time.monotonic() < deadline else ""


_WORK: list = []


def equivalent_mutants() -> dict[str, str]:
    """Return the reasons why mutants change nothing, by their keys."""
    if not EQUIVALENT.exists():
        return {}
    rows = [line.split("\t") for line in EQUIVALENT.read_text().splitlines() if "\t" in line]
    return {row[0]: row[1] for row in rows}


def sample_of(every: list[Mutant], seed: int) -> list[Mutant]:
    """Return the mutants in an order drawn by their keys: edits elsewhere do not change it."""

    def draw(mutant: Mutant) -> bytes:
        return hashlib.sha256(f"{seed} {mutant.key}".encode()).digest()

    return sorted(every, key=draw)


def groups_of_tests() -> list[str]:
    """Return the folders of tests, and the loose files beside them."""
    tests = ROOT / "tests"
    folders = {path.parent for path in tests.rglob("test_*.py")} - {tests}
    top = {tests / folder.relative_to(tests).parts[0] for folder in folders}
    return [str(path.relative_to(ROOT)) for path in sorted({*top, *tests.glob("test_*.py")})]


def main() -> None:
    """Sample mutants, run their tests, print the survivors and the share that was killed."""
    parser = argparse.ArgumentParser(description="Which defects would the tests miss?")
    parser.add_argument("folders", nargs="*", default=list(FOLDERS))
    parser.add_argument("--sample", type=int, default=300, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernels", action="store_true", help="mutants inside kernels")
    parser.add_argument("--tests", nargs="+", default=groups_of_tests(),
                        help="folders and files of tests that are run")  # fmt: skip
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of processes")
    parser.add_argument("--minutes", type=float, default=math.inf,
                        help="stop after so long; the next run goes on, and retries survivors "
                        "whose tests changed")  # fmt: skip
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "build/mutants",
                        help="what is kept between runs")  # fmt: skip
    options = parser.parse_args()
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"  # two mutants of one file may look alike
    deadline = time.monotonic() + 60 * options.minutes
    every = mutants_of(options.folders, kernels=options.kernels)
    sample = sample_of(every, options.seed)[: options.sample]
    tree = copy_of_the_tree(options.folder / "tree")
    use_kernels(options.folder.resolve() / "kernels")
    reach = Reach(tree)
    reach.add(options.tests, options.jobs, deadline)
    for name in ("numba", "pytest", "scipy.stats", "sklearn.linear_model", "pandas", "torch"):
        with contextlib.suppress(ImportError):  # loaded once, before the forks
            importlib.import_module(name)

    known = equivalent_mutants()
    log = options.folder / "results.json"
    results: dict[str, list[str]] = json.loads(log.read_text()) if log.exists() else {}
    quick = sorted(reach.durations, key=lambda test: reach.durations[test])[:100]
    if not results and outcome(tree, quick, 10 * PATIENCE) != "survived":
        sys.exit("tests fail in a child process without a mutant")
    state = digest(ROOT / "tests")
    ended = {key for key, (end, when) in results.items() if end in KILLED or when == state}
    left = [mutant for mutant in sample if mutant.key not in ended | known.keys()]
    # in random order, so that a part of a run is a sample too
    for mutant, end in verdicts(left, reach, options.folder, options.jobs, deadline):
        results[mutant.key] = [end, state]
        log.write_text(json.dumps(results))
        if end not in KILLED:
            print(f"{end} {mutant.path}:{mutant.line} {mutant.key}", flush=True)
    summarize(sample, known, results)


def summarize(sample: list[Mutant], known: dict[str, str], results: dict[str, list[str]]) -> None:
    """Print how many mutants of the sample met which end, and the share that was killed."""
    counts = dict.fromkeys(("killed", "timeout", "survived", "unreached", "equivalent", "left"), 0)
    for mutant in sample:
        end = "equivalent" if mutant.key in known else results.get(mutant.key, ["left"])[0]
        counts[end] += 1
    tried = len(sample) - counts["equivalent"] - counts["left"]
    killed = sum(counts[end] for end in KILLED)
    print(", ".join(f"{number} {result}" for result, number in counts.items()))
    print(f"killed {killed} of {tried} ({100 * killed / max(1, tried):.1f} percent)")


if __name__ == "__main__":
    main()
