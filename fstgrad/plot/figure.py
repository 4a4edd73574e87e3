"""The figure that a notebook shows without pyplot.  Needs matplotlib."""

import io

from matplotlib.figure import Figure


class Picture(Figure):
    """A figure of matplotlib that draws itself in a notebook, as SVG."""

    def _repr_svg_(self) -> str:
        stream = io.StringIO()
        self.savefig(stream, format="svg", bbox_inches="tight")
        return stream.getvalue()
