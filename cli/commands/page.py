"""Build one self-contained HTML page: tables that can be sorted and searched, pictures in SVG.

All text is escaped, and the page's security policy forbids it to load anything from a network.
"""

import html
from collections.abc import Iterable, Sequence
from typing import Any

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; }
body { padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; }
th, td { text-align: left; padding: .25rem .7rem; border-bottom: 1px solid #8885; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
th button { font: inherit; font-weight: 600; background: none; border: 0; padding: 0; }
th button { cursor: pointer; }
th[aria-sort=ascending] button::after { content: " \\25B2"; }
th[aria-sort=descending] button::after { content: " \\25BC"; }
input { font: inherit; margin: .4rem 0; padding: .2rem .5rem; } td { white-space: pre-wrap; }
td.fixed { font-family: ui-monospace, monospace; white-space: pre; } figure { margin: 1rem 0; }
figure svg { max-width: 100%; height: auto; background: #fff; } .note { opacity: .75; }
"""
_SCRIPT = """
for (const box of document.querySelectorAll("section.table")) {
  const body = box.querySelector("tbody"), heads = [...box.querySelectorAll("th")];
  box.querySelector("input").addEventListener("input", event => {
    const wanted = event.target.value.toLowerCase();
    let shown = 0;
    for (const row of body.rows) {
      row.hidden = !row.textContent.toLowerCase().includes(wanted);
      shown += !row.hidden;
    }
    box.querySelector("output").textContent = shown + " of " + body.rows.length;
  });
  heads.forEach((head, column) => head.firstChild.addEventListener("click", () => {
    const falls = head.getAttribute("aria-sort") === "ascending";
    heads.forEach(other => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", falls ? "descending" : "ascending");
    const key = row => row.cells[column].textContent;
    const compare = (a, b) => {
      const x = parseFloat(key(a)), y = parseFloat(key(b));
      return isNaN(x) || isNaN(y) ? key(a).localeCompare(key(b)) : x - y;
    };
    const rows = [...body.rows].sort(compare);
    body.replaceChildren(...(falls ? rows.reverse() : rows));
  }));
}
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


class Page:
    """A page; its parts appear in the order in which they are added."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts: list[str] = []

    def heading(self, text: str) -> None:
        """Add a heading."""
        self._parts.append(f"<h2>{_escaped(text)}</h2>")

    def note(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f'<p class="note">{_escaped(text)}</p>')

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Add a table; cells of several lines are in a font of fixed width."""
        heads = "".join(f"<th><button>{_escaped(name)}</button></th>" for name in columns)
        body = ["".join(map(_cell, row)) for row in rows]
        self._parts.append(
            '<section class="table"><input type="search" placeholder="search" '
            f'aria-label="search"> <output>{len(body)} of {len(body)}</output><div class="scroll">'
            f"<table><thead><tr>{heads}</tr></thead><tbody>"
            + "".join(f"<tr>{cells}</tr>\n" for cells in body)
            + "</tbody></table></div></section>"
        )

    def picture(self, svg: str, caption: str) -> None:
        """Add an SVG picture; it is not escaped, so it must be one that fstgrad drew."""
        start = svg.index("<svg")
        self._parts.append(
            f"<figure>{svg[start:]}<figcaption>{_escaped(caption)}</figcaption></figure>"
        )

    def text(self) -> str:
        """Return the HTML of the page."""
        return (
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{_escaped(self.title)}</title><style>{_STYLE}</style></head>\n"
            f"<body><h1>{_escaped(self.title)}</h1>\n"
            + "\n".join(self._parts)
            + f"\n<script>{_SCRIPT}</script></body></html>\n"
        )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f'<td class="number">{value:.6g}</td>'
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td class="number">{value}</td>'
    text = "" if value is None else str(value)
    kind = ' class="fixed"' if "\n" in text else ""
    return f"<td{kind}>{_escaped(text)}</td>"


def _escaped(text: str) -> str:
    return html.escape(text, quote=True)
