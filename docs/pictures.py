"""Draw the pictures of the pages: `python docs/pictures.py docs/_static/plot`.

Without the program dot the automaton and the chart of decisions say that they are missing.
"""

import json
import pathlib
import re
import shutil
import sys

import numpy as np

import fstgrad as fg
from fstgrad import plot
from fstgrad.grm.files import read_table

HERE = pathlib.Path(__file__).parent
RULES = """
alphabet = chs
sch -> sh 0.25
ch <-> sh 0.5
"""

CHART = """digraph {{
  graph [rankdir=LR, bgcolor="{background}", nodesep=0.18, ranksep=0.55];
  node [shape=box, style="rounded", fontname="Helvetica", fontsize=12, color="{foreground}",
        fontcolor="{foreground}", margin="0.12,0.07"];
  edge [fontname="Helvetica", fontsize=10, color="{line}", fontcolor="{foreground}", arrowsize=0.7];
  q [label="What do you predict?", penwidth=2];
  s [label="a sequence"]; t [label="a tree"]; g [label="labels of a\\ngraph or image"];
  c [label="counts"];
  q -> s; q -> t; q -> g; q -> c;
  node [style="rounded,filled", fillcolor="{fill}", color="{line}"];
  s -> StringDistribution [label="known length"];
  s -> SequenceModel [label="learn x to y"];
  s -> Lattice [label="lattice, any length"];
  s -> nbest_risk [label="n-best list"];
  t -> SpanningTrees [label="any order"];
  t -> ProjectiveTrees [label="no crossing arcs"];
  g -> PairwiseMRF;
  c -> GeneralizedRootModel;
}}
"""


def marginals(dark):
    """Return the picture of the first page: Q of a model that half knows gattaca."""
    abc = fg.Alphabet("acgt")
    scores = np.random.default_rng(0).normal(size=(7, 5, 4))
    scores[np.arange(7), :, abc.encode("gattaca")] += 2.2
    b = fg.EditDistance(abc).compile("gattaca").scaled(-0.3)
    q = fg.StringDistribution(scores, b).marginals()
    return plot.marginals(q, abc, target="gattaca", dark=dark)


def layers():
    """Return the source of a chart of which package imports which, from the imports themselves."""
    found = set()
    for path in (HERE.parent / "fstgrad").glob("*/**/*.py"):
        own = path.relative_to(HERE.parent / "fstgrad").parts[0]
        names = re.findall(
            r"^(?:from|import) fstgrad\.(\w+)", path.read_text("utf-8"), re.MULTILINE
        )
        found |= {(own, name) for name in names if name != own}
    packages = {own for own, _ in found} - {"core", "io", "plot"}
    edges = {(a, b) for a, b in found if {a, b} <= packages}
    # an arrow that longer ways imply is left out
    reach = {a: {b for x, b in edges if x == a} for a in packages}
    for _ in packages:
        reach = {a: own.union(*(reach[b] for b in own)) for a, own in reach.items()}
    kept = {(a, b) for a, b in edges if not any(b in reach[c] for x, c in edges if x == a)}
    lines = "".join(f"  {a} -> {b};\n" for a, b in sorted(kept))
    single = "".join(f"  {own};\n" for own in sorted(packages))
    return (
        'digraph {\n  graph [bgcolor="#ffffff", rankdir=BT, nodesep=0.3, ranksep=0.35];\n'
        '  node [shape=box, style="rounded,filled", fillcolor="#e8f1fa", color="#08519c",'
        ' fontname="Helvetica", fontsize=12];\n  edge [color="#08519c", arrowsize=0.7];\n'
        f"{single}{lines}}}\n"
    )


def errors_of_tasks():
    """Return {data: {"word error": percent}} of the first table on learning, best first."""
    text = (HERE / "performance" / "learning.md").read_text(encoding="utf-8")
    rows = text.split("| data | pairs | word error |")[1].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in row.strip("| ").split("|")] for row in rows]
    cells.sort(key=lambda cell: float(cell[2]))
    return {cell[0]: {"": float(cell[2])} for cell in cells}


def gallery():
    """Return {name: figure} of the pages."""
    times = json.loads((HERE / "performance" / "measured.json").read_text(encoding="utf-8"))
    counts, names, *_ = read_table(HERE.parent / "data" / "scipy_words.csv")
    words_model = fg.GeneralizedRootModel(k=2, alpha=0.06).fit(counts, feature_names=names)
    letters = fg.Alphabet("abcdefghijklmnopqrstuvwxyz")
    words = fg.Alphabet(["the", "a", "cat", "cad", "sat", "sad", "on", "an", "mat", "mad"])
    lines = ("the cat sat on the mat", "the cad sat on mat", "a cat sad on the mad")
    lattice = fg.Lattice.from_nbest([line.split() for line in lines], [0.0, -0.4, -0.8], words)
    sentence = ["economic", "news", "had", "little", "effect", "on", "markets"]
    heads = [2, 3, 0, 5, 3, 5, 6]
    scores = np.random.default_rng(3).normal(size=(8, 8))
    scores[heads, np.arange(1, 8)] += 3.0
    trees = fg.SpanningTrees(scores, single_root=True)
    caps, bounds = np.arange(1.0, 7.0), []
    d = np.random.default_rng(1).normal(size=(8, 4))
    for cap in caps:
        b = fg.EditDistance(fg.Alphabet("acgt")).compile("gattacat", cap=float(cap))
        bounds.append(fg.StringDistribution(d, b).log_partition_bounds())
    exact = fg.StringDistribution(d, fg.EditDistance(fg.Alphabet("acgt")).compile("gattacat"))
    rows, columns = np.indices((24, 24))
    clean = ((rows - 12) ** 2 + (columns - 12) ** 2 < 60).astype(int)
    flipped = np.random.default_rng(0).random(clean.shape) < 0.15
    noisy = np.where(flipped, 1 - clean, clean)
    field = fg.PairwiseMRF.grid(24, 24, 1.5 * np.eye(2)[noisy.ravel()], 0.9 * np.eye(2))
    p = field.infer("bp", damping=0.3).node[:, 1].reshape(clean.shape)
    after = field.decode("graph-cut").labels.reshape(clean.shape)
    return {
        "marginals": marginals(False),
        "alignment": plot.alignment(fg.EditDistance(letters).align("sittinge", "kitten")),
        "lattice": plot.confusion_network(lattice),
        "trees": plot.trees(trees.marginals(), sentence, heads=heads),
        "bounds": plot.bounds(caps, *zip(*bounds, strict=True), exact=exact.log_partition()),
        "errors": plot.bars(errors_of_tasks(), xlabel="words that are wrong, percent", log=False),
        "word-graph": plot.word_graph(words_model.to_networkx(20)),
        "speed": plot.bars(times["milliseconds"], xlabel="milliseconds"),
        "strip": plot.strip({"clean": clean, "before": noisy, "P(y = 1)": p, "after": after}),
    }


def drawn(source):
    """Return the SVG of a graph of dot, or one that says that dot is missing."""
    if shutil.which("dot"):
        return plot.render(source, "svg")
    print("docs: no program dot (graphviz); a picture is left out", file=sys.stderr)
    text = "This picture is drawn where the program dot (graphviz) is installed."
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="560" height="40">'
        '<text x="8" y="25" font-family="sans-serif" font-size="14" '
        f'fill="#808080">{text}</text></svg>'
    ).encode()


def main(folder):
    """Write all pictures."""
    target = pathlib.Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    for name, figure in gallery().items():
        plot.save(figure, target / f"{name}.svg")
    letters = fg.Alphabet("abcdefghijklmnopqrstuvwxyz")
    cat = plot.automaton_source(fg.EditDistance(letters).compile("cat"))
    (target / "automaton.svg").write_bytes(drawn(cat))
    rules = fg.RuleLoss(RULES)
    drawing = plot.automaton_source(rules.transducer, rules.alphabet, title="rules")
    (target / "rules.svg").write_bytes(drawn(drawing))
    (target / "layers.svg").write_bytes(drawn(layers()))
    for name, dark in (("light", False), ("dark", True)):
        plot.save(marginals(dark), target / f"marginals-{name}.svg")
        colors = (
            {"background": "#14181e", "foreground": "#e6e9ed", "line": "#8cc8ff", "fill": "#1d2a38"}
            if dark
            else {
                "background": "#ffffff",
                "foreground": "#1f2328",
                "line": "#08519c",
                "fill": "#e8f1fa",
            }
        )
        (target / f"which-{name}.svg").write_bytes(drawn(CHART.format(**colors)))


if __name__ == "__main__":
    main(sys.argv[1])
