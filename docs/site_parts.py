"""Parts of the site: figures and order of the gallery, and help texts of commands as pages."""

import builtins
import pathlib
import re
from functools import cache

import _papers  # of benchmarks/
from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

_ORDER = [
    "minimum_risk", "spelling", "homologs", "dependency_parser", "denoise", "segmentation",
    "classic3", "torch_mwer", "torch_ctc_lattice", "torch_ctc_bigrams", "torch_rerank",
    "torch_tagger", "torch_rare_tags", "torch_entities", "torch_finetune", "torch_parser",
    "torch_pixels", "torch_segmentation", "jax_tagger",
]  # fmt: skip
_SHOWN: set[int] = set()


def figures(_block, block_vars, gallery_conf):
    """Return the pictures of an example: matplotlib's figures among its global names."""
    names = []
    for value in block_vars["example_globals"].values():
        for figure in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(figure, Figure) and id(figure) not in _SHOWN:
                _SHOWN.add(id(figure))
                path = next(block_vars["image_path_iterator"])
                figure.savefig(path, dpi=120, bbox_inches="tight")
                names.append(path)
    return figure_rst(names, gallery_conf["src_dir"])


def name_file(gallery_conf, name):
    """Let `__file__` be the example: sphinx-gallery runs it without that name."""
    builtins.__file__ = str(pathlib.Path(gallery_conf["src_dir"], "../examples", name).resolve())


def order(name: str) -> tuple[int, str]:
    """Return the place of an example."""
    stem = pathlib.Path(name).stem
    return (_ORDER.index(stem) if stem in _ORDER else len(_ORDER), stem)


def paper_results(app, page, source):
    """Append the committed results of a paper to its page as it is read."""
    folder, _, paper = page.rpartition("/")
    if folder == "papers" and paper != "index":
        for quick in (False, True):
            app.env.note_dependency(str(_papers.path_of(paper, quick)))
        source[0] += _papers.markdown(paper)


def plain_text(_app, _context, lines):
    """Show what a command says of itself as it is: no markup, indented parts as code."""
    text = "\n".join(line.removeprefix("| ").replace("\b", "") for line in lines)
    text = text.replace("\\b\n", "\n")
    shown: list[str] = []
    for paragraph in text.split("\n\n"):
        rows = paragraph.strip("\n").split("\n")
        if any(row.startswith(" ") for row in rows):
            shown += ["::", "", *("    " + row for row in rows), ""]
        else:
            shown += [*(_escaped(row) for row in rows), ""]
    lines[:] = shown


def plain_options(_app, _context, lines):
    """Escape what reads as markup in the help of options."""
    lines[:] = [line if _is_field(line) else _escaped(line) for line in lines]


def plain_bars(_app, _what, _name, _object, _options, lines):
    """Escape the bars of |x| in docstrings, which would be substitutions, outside of code."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith(">>>"):
            parts = re.split("(`[^`]*`)", line)
            parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
            lines[i] = "".join(parts)


def example_of_page(_app, what, name, _object, _options, lines):
    """Append the shortest example of the family's page to a name without one of its own."""
    if what not in ("class", "exception", "function") or any(">>>" in line for line in lines):
        return
    module, _, own = name.rpartition(".")
    for page, (listed, blocks) in _pages().items():
        used = [b for b in blocks if re.search(rf"\b{own}\b", b[0])]
        if (module, own) in listed and used:
            code, printed = min(used, key=lambda block: len(block[0]))
            lines += ["", ".. rubric:: Example", "", f"From :doc:`/api/{page}`:", ""]
            lines += [".. code-block:: python", "", *_indented(code), ""]
            if printed:
                lines += [".. code-block:: text", "", *_indented(printed), ""]


@cache
def _pages():
    """Return {page of the API: (listed names with their modules, [(code, what it prints)])}."""
    found = {}
    for path in pathlib.Path(__file__).parent.glob("api/*.md"):
        text = path.read_text(encoding="utf-8")
        lists = re.findall(r"currentmodule:: (\S+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        listed = {
            (module, n) for module, own in lists for n in re.findall(r"^   (\w+)$", own, re.M)
        }
        block = r"^```python\n(.*?)^```\n(?:```text\n(.*?)^```\n)?"
        found[path.stem] = listed, re.findall(block, text, re.MULTILINE | re.DOTALL)
    return found


def _indented(text):
    return ["   " + line for line in text.splitlines()]


def _is_field(line):
    return line.lstrip().startswith((":", ".. "))


def _escaped(line):
    for mark in "\\*|`":
        line = line.replace(mark, "\\" + mark)
    return line.replace("_ ", "\\_ ")
