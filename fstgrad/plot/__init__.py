"""Pictures of what the library computes, in one look.  Needs the extra `plot` (matplotlib).

Figures are made without pyplot, so that no window, backend or global state is touched.  Every
function returns a `matplotlib.figure.Figure`; a notebook shows it, `save` writes it.  Colours are
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
- `automaton_source`, `automaton_svg` : transducers and loss automata, by the program dot.
- `save` : to PNG, SVG or PDF, by the name of the file.
"""

from fstgrad.plot.automata import automaton_source, automaton_svg, render
from fstgrad.plot.counts import word_graph
from fstgrad.plot.curves import bars, bounds, curves, learning
from fstgrad.plot.grids import strip
from fstgrad.plot.look import check_name, notebook, save
from fstgrad.plot.sentences import confusion_network, trees
from fstgrad.plot.strings import alignment, marginals

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
