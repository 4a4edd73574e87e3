"""The frame of `papers.py`: sections, their files, their pages, and what moved since the last run.

A paper is a module with `sections(quick)`, which yields one `Section` for each table or figure of
the paper.  `run` writes them as JSON with the machine, the versions and the seconds; `markdown`
makes the page of the site from that file, so that building the site computes nothing; `moved` says
which values differ between two runs.  Times are never compared.
"""

import json
import math
import pathlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any

import matplotlib
from _harness import Row, environment, shown

from fstgrad import plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FOLDER = pathlib.Path(__file__).parent.parent / "docs" / "papers"
DIGITS = 6
SMALL = {"svg.fonttype": "none", "font.sans-serif": ["DejaVu Sans"]}  # text as text, one font


@dataclass(frozen=True)
class Section:
    """One table or figure of a paper: the published values, ours, and what to think of them.

    Parameters
    ----------
    where : str
        The place in the paper: "Figure 5", "section 4.2, Eq. 24".
    title : str
        One line.
    rows : list of dict
        The table, with values of JSON.  Names of columns with times begin with "seconds", and of
        quotients of times with "ratio" or "times"; these are not compared.  A row with other
        columns begins a new table.
    verdict : str
        Whether the values agree, and why not.
    text : str
        Markdown: definitions, deviations.
    pictures : {name: figure of matplotlib, or DOT text}
        A name in lower case with hyphens; it is also the text of the picture.
    tolerance : float
        The largest difference to the values of another run, relative to values above 1.
    missing : str
        Data that this section needs and that is not at hand: it has no rows and is not compared.
    """

    where: str
    title: str
    rows: list[Row]
    verdict: str
    text: str = ""
    pictures: "dict[str, Figure | str]" = field(default_factory=dict)
    tolerance: float = 1e-9
    missing: str = ""


def path_of(paper: str, quick: bool) -> pathlib.Path:
    """Return the file of a paper's sections."""
    return (FOLDER / "quick" if quick else FOLDER) / f"{paper}.json"


def run(paper: str, sections: Iterable[Section], quick: bool, *, pictures: bool) -> dict[str, Any]:
    """Return the sections as values of JSON; print each one when it is computed.

    With `pictures`, those of the paper are written anew.
    """
    done: list[dict[str, Any]] = []
    if pictures:
        for old in (FOLDER / "pictures").glob(f"{paper}-*"):
            old.unlink()
    begin = last = time.perf_counter()
    for section in sections:
        now = time.perf_counter()
        result = {
            "where": section.where,
            "title": section.title,
            "seconds": round(now - last, 1),
            "tolerance": section.tolerance,
            "missing": section.missing,
            "rows": section.rows,
            "verdict": section.verdict,
            "text": section.text,
            "pictures": [_write(paper, *p) for p in section.pictures.items() if pictures],
        }
        last = time.perf_counter()
        done.append(json.loads(json.dumps(result)))
        print("\n".join(_lines(done[-1])), flush=True)
    seconds = round(time.perf_counter() - begin, 1)
    return {"paper": paper, "quick": quick, **environment(), "seconds": seconds, "sections": done}


def write(result: dict[str, Any]) -> None:
    """Write the result of `run` to its file."""
    path = path_of(result["paper"], result["quick"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def markdown(paper: str) -> str:
    """Return the page of a paper from its file: of the full run, else of the quick one."""
    path = path_of(paper, quick=False)
    if not path.exists():
        path = path_of(paper, quick=True)
    result = json.loads(path.read_text(encoding="utf-8"))
    command = "make papers QUICK=1" if result["quick"] else "make papers"
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    lines = [
        f"These are the results of `{command} PAPERS={paper}`, which took "
        f"{result['seconds']:,.0f} s on {result['cores']} cores of {result['machine']}, threads: "
        f"{result['threads']} ({versions}).",
        "",
    ]
    for section in result["sections"]:
        lines += _lines(section)
    return "\n".join(lines)


def moved(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return what differs between the values of two runs of a paper, a line for each value."""
    names = [[f"{s['where']}: {s['title']}" for s in run["sections"]] for run in (before, after)]
    if names[0] != names[1]:
        return [f"sections: {names[0]} became {names[1]}"]
    found = []
    for name, old, new in zip(names[0], before["sections"], after["sections"], strict=True):
        if new.get("missing"):
            continue
        if len(old["rows"]) != len(new["rows"]):
            found.append(f"{name}: {len(old['rows'])} rows became {len(new['rows'])}")
            continue
        for number, (row, other) in enumerate(zip(old["rows"], new["rows"], strict=True)):
            for column in dict.fromkeys((*row, *other)):
                a, b = row.get(column), other.get(column)
                if not _is_time(column) and not _is_near(a, b, new["tolerance"]):
                    found.append(f"{name}: row {number}, {column}: {a!r} became {b!r}")
    return found


def _is_time(column: str) -> bool:
    return column.startswith(("seconds", "ratio", "times"))


def _is_near(a: Any, b: Any, tolerance: float) -> bool:
    numbers = all(isinstance(x, int | float) and not isinstance(x, bool) for x in (a, b))
    if not numbers or not (math.isfinite(a) and math.isfinite(b)):
        return a == b
    return abs(a - b) <= tolerance * max(1.0, abs(a), abs(b))


def _write(paper: str, name: str, figure: "Figure | str") -> str:
    """Write a picture; return its name relative to the page."""
    path = FOLDER / "pictures" / f"{paper}-{name}.svg"
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(figure, str):
        path.write_bytes(plot.render(figure, "svg"))
    else:
        with matplotlib.rc_context(SMALL | {"svg.hashsalt": paper}):
            plot.save(figure, path)
    return f"pictures/{path.name}"


def _lines(section: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a section in Markdown."""
    yield from (f"## {section['where']}: {section['title']}", "")
    if section["text"]:
        yield from (section["text"], "")
    for columns, rows in groupby(section["rows"], key=list):
        yield from (_row(columns), _row("---" for _ in columns))
        yield from (_row(shown(name, row[name], DIGITS) for name in columns) for row in rows)
        yield ""
    for picture in section["pictures"]:
        name = picture.split("-", 1)[1].removesuffix(".svg").replace("-", " ")
        yield from (f"![{section['where']}, {name}]({picture})", "")
    yield from (f"**Verdict**: {section['verdict']} ({section['seconds']:g} s)", "")


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
