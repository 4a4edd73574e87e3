"""The modules whose docstrings have examples."""

import re

from tests.helpers.sources import ROOT

MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in ROOT.glob("fstgrad/**/*.py")
    if re.search(r"^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE)
)


NEEDED = {"torch": ["torch"], "jax": ["jax"], "plot": ["matplotlib"], "grm": ["sklearn"]}
