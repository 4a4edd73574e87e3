"""The figure that a notebook shows without pyplot.  Needs matplotlib."""

import io
import pathlib
from typing import Any

from matplotlib import rc_context, rcParams
from matplotlib.figure import Figure

_DATES = {"svg": "Date", "svgz": "Date", "pdf": "CreationDate", "ps": "CreationDate"}


class Picture(Figure):
    """A figure of matplotlib that draws itself in a notebook, as SVG."""

    def savefig(self, fname: Any, **options: Any) -> None:
        """Save as matplotlib does, the same bytes in every run: without a date or random names."""
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
