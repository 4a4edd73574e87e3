"""The lines of code that the page of notation names, looked up whenever the site is built."""

import pathlib
import re

_LINK = re.compile(r"\[([^]]*)\]\(([^)#]+\.py)\)")


def line_of(code, name):
    """Return the line, from 1, that defines a name, or the first that has it; None without one."""
    defined = rf"^\s*(?:def|class) {name}\b|^\s*(?:self\.)?{name}\b *[:=]"
    found = re.search(defined, code, re.MULTILINE) or re.search(rf"\b{name}\b", code)
    return found and code.count("\n", 0, found.end()) + 1


def with_lines(text, folder):
    """Return a page with the line of the name of each row in the text of its link to a file."""
    return "\n".join(_with_line(row, pathlib.Path(folder)) for row in text.split("\n"))


def _with_line(row, folder):
    cells = re.split(r"(?<!\\)\|", row)
    link = _LINK.search(cells[4]) if len(cells) > 4 else None
    if not link:
        return row
    code = (folder / link[2]).read_text(encoding="utf-8")
    names = re.findall(r"`(?:\w+\.)*(\w+)", cells[3])
    line = line_of(code, names[0]) if names else None
    return row if line is None else row.replace(link[0], f"[{link[1]}, line {line}]({link[2]})")


def add_lines(app, page, source):
    """Rewrite the page of notation as it is read."""
    if page == "internals/notation":
        source[0] = with_lines(source[0], pathlib.Path(app.srcdir) / "internals")
