"""The results of the papers: committed values come out again, pages and pictures are complete."""

import copy
import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
PAGES = ROOT / "docs" / "papers"
PAPERS = sorted(path.stem for path in (PAGES / "quick").glob("*.json"))


@pytest.fixture(scope="module")
def frame():
    """Return the module `_papers` of the benchmarks."""
    pytest.importorskip("matplotlib")
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import _papers
    finally:
        sys.path.pop(0)
    return _papers


@pytest.mark.slow
@pytest.mark.parametrize("paper", PAPERS)
def test_the_values_of_the_quick_run_have_not_moved(paper):
    pytest.importorskip("pynini")
    done = subprocess.run(
        [sys.executable, "benchmarks/papers.py", "--quick", "--check", paper],
        capture_output=True, text=True, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_each_paper_has_a_page():
    listed = re.findall(r"^(\w+)$", (PAGES / "index.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert PAPERS
    assert (
        sorted(listed) == PAPERS == sorted(p.stem for p in PAGES.glob("*.md") if p.stem != "index")
    )


def test_pages_show_all_rows_and_pictures(frame):
    for paper in PAPERS:
        path = frame.path_of(paper, quick=not frame.path_of(paper, quick=False).exists())
        result = json.loads(path.read_text(encoding="utf-8"))
        page = frame.markdown(paper)
        rows = sum(len(section["rows"]) for section in result["sections"])
        assert page.count("\n| ") >= rows + 2 * len(result["sections"])
        pictures = [name for section in result["sections"] for name in section["pictures"]]
        assert re.findall(r"\]\((pictures/[^)]+)\)", page) == pictures
        for picture in pictures:
            assert (PAGES / picture).stat().st_size <= 100_000


def run_of(rows, tolerance=1e-9):
    section = {"where": "Table 1", "title": "a", "tolerance": tolerance, "rows": rows}
    return {"sections": [section]}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"seconds": 2.0, "value": 1.0, "name": "a"}, []),
        ({"seconds": 1.0, "value": 1.0 + 9e-10, "name": "a"}, []),
        ({"value": 1 + 2e-9, "name": "a"}, ["row 0, value: 1.0 became 1.000000002"]),
        ({"seconds": 1.0, "value": float("inf"), "name": "a"}, ["row 0, value: 1.0 became inf"]),
        ({"seconds": 1.0, "value": None, "name": "a"}, ["row 0, value: 1.0 became None"]),
        ({"seconds": 1.0, "value": 1.0, "name": "b"}, ["row 0, name: 'a' became 'b'"]),
        ({"seconds": 1.0, "value": 1.0}, ["row 0, name: 'a' became None"]),
    ],
)  # fmt: skip
def test_values_that_move_are_named(frame, row, said):
    before = run_of([{"seconds": 1.0, "value": 1.0, "name": "a"}])
    assert frame.moved(before, run_of([row])) == [f"Table 1: a: {one}" for one in said]


def test_sections_and_rows_that_come_or_go_are_named(frame):
    before = run_of([{"value": 1.0}])
    after = copy.deepcopy(before)
    after["sections"][0]["where"] = "Table 2"
    assert frame.moved(before, after) == ["sections: ['Table 1: a'] became ['Table 2: a']"]
    assert frame.moved(before, run_of([])) == ["Table 1: a: 1 rows became 0"]


def test_a_section_without_its_data_is_not_compared(frame):
    before, after = run_of([{"value": 1.0}]), run_of([])
    after["sections"][0]["missing"] = "a treebank"
    assert frame.moved(before, after) == []
