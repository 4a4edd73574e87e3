"""Plot results of the library in a uniform style.  Needs the extra `plot` (matplotlib).

Figures do not use pyplot, so they open no window and change no backend or global state.  Plots are
`matplotlib.figure.Figure` objects: a notebook shows them, and `save` writes them.  The colours are
those of Okabe and Ito, which colour-blind readers can tell apart; `dark=True` draws on black.

Index
-----
- `marginals` : Q by position and symbol, with the target marked.
- `alignment` : two strings, and the operations between them.
- `confusion_network` : the words of a lattice by position, with their posteriors.
- `trees` : arc probabilities over a sentence.
- `strip` : labels, pictures and probabilities of a grid side by side.
- `word_graph` : the strongest sets of a root model.
- `curves`, `learning`, `bounds`, `bars` : lines over a common axis, epochs, caps, benchmarks.
- `automaton_source`, `automaton_svg`, `render` : transducers and loss automata in DOT and SVG,
  drawn by the program dot.
- `save`, `check_name` : write PNG, SVG or PDF, by the ending of the file name.
- `notebook` : make a `_repr_svg_` method.

Reading order
-------------
- `figure`, `theme` : figures without pyplot; the style of all figures, and files.
- `strings`, `sentences`, `grids`, `counts`, `curves`, `automata` : the plots.
"""

from fstgrad.plot.automata import automaton_source, automaton_svg, render
from fstgrad.plot.counts import word_graph
from fstgrad.plot.curves import bars, bounds, curves, learning
from fstgrad.plot.grids import strip
from fstgrad.plot.sentences import confusion_network, trees
from fstgrad.plot.strings import alignment, marginals
from fstgrad.plot.theme import check_name, notebook, save

__all__ = [
    "alignment",
    "automaton_source",
    "automaton_svg",
    "bars",
    "bounds",
    "check_name",
    "confusion_network",
    "curves",
    "learning",
    "marginals",
    "notebook",
    "render",
    "save",
    "strip",
    "trees",
    "word_graph",
]
