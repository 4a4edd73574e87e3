"""A figure that a notebook shows without pyplot.

It is a class of matplotlib, so it is apart from `theme`, which loads matplotlib only to draw.
"""

import io
import pathlib
from typing import Any

from matplotlib import rc_context, rcParams
from matplotlib.figure import Figure

_DATES = {"svg": "Date", "svgz": "Date", "pdf": "CreationDate", "ps": "CreationDate"}


class Picture(Figure):
    """A matplotlib figure that a notebook shows as SVG."""

    def savefig(self, fname: Any, **options: Any) -> None:
        """Save as matplotlib does, without date or random ids, so every run gives equal bytes."""
        named = pathlib.Path(fname).suffix[1:] if isinstance(fname, str | pathlib.Path) else ""
        form = options.get("format") or named or rcParams["savefig.format"]
        if form.lower() in _DATES:
            options["metadata"] = {_DATES[form.lower()]: None} | (options.get("metadata") or {})
        with rc_context({"svg.hashsalt": "fstgrad"}):
            super().savefig(fname, **options)

    def _repr_svg_(self) -> str:
        stream = io.StringIO()
        self.savefig(stream, format="svg", bbox_inches="tight")
        return stream.getvalue()
