"""The tables and figures of the four papers, beside what fstgrad computes.

    python benchmarks/papers.py [--quick] [--check] [PAPER ...]

Each paper's results are printed and written to `docs/papers`, with pictures, and `make docs` shows
them as pages.  `--quick` takes small sizes and writes to `docs/papers/quick`.  `--check` writes
nothing, compares the values (not the times) with those in the file, and fails if one has moved.
"""

import argparse
import importlib
import json
import shutil
import sys

from _harness import one_thread, openfst_in_process

one_thread()

import _papers  # noqa: E402

PAPERS = ("cortes", "inouye", "mcallester", "zmigrod")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("papers", nargs="*", metavar="|".join(PAPERS), help="all if left out")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--check", action="store_true", help="compare with the files")
    given = parser.parse_args()
    unknown = [name for name in given.papers if name not in PAPERS]
    if unknown:
        parser.error(f"no paper {unknown[0]!r}; give {' or '.join(PAPERS)}")
    if not (given.quick or given.check or shutil.which("dot")):
        parser.error("the pictures need the program dot (apt install graphviz), or give --quick")
    papers = given.papers or PAPERS
    for path in (_papers.path_of(paper, given.quick) for paper in papers if given.check):
        if not path.exists():
            parser.error(f"--check: no file {path}; run without --check first")
    openfst_in_process()
    found = []
    for paper in papers:
        sections = importlib.import_module(f"_papers_{paper}").sections(given.quick)
        if given.check:
            path = _papers.path_of(paper, given.quick)
            committed = json.loads(path.read_text(encoding="utf-8"))
            result = _papers.run(paper, sections, given.quick, pictures=False)
            found += _papers.moved(committed, result)
        else:
            _papers.write(_papers.run(paper, sections, given.quick, pictures=not given.quick))
    if found:
        sys.exit("values that moved:\n" + "\n".join(found))


if __name__ == "__main__":
    main()
