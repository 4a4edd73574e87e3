"""Losses written as grammars in pynini, and how a grammar is found and loaded.

A grammar is a Python module with

- a docstring: one line of summary, then what costs what, then its source;
- `build(alphabet=None)`, which returns a pynini.Fst: it reads the hypothesis, writes the target,
  and its weights are costs;
- optionally `ALPHABET`, the symbols it is made for; `EXAMPLES`, rows (hypothesis, target, loss);
  `SEMIRING`, "tropical" (the default) or "probability".

The grammars here are found by name, any other by the path of its file (`Grammar.load`).

Index
-----
- `keyboard` : slips to neighbouring keys.       - `phonetic` : phones by articulation.
- `ocr` : characters that look alike.            - `caseless` : without case and punctuation.
- `damerau` : transpositions.                    - `number_formats` : how numbers are written.
- `dna` : transitions and transversions.         - `protein` : classes of residues, affine gaps.
- `pieces` : what they are put together from.
"""

from fstgrad.grammars.loading import NAMES, Grammar, ModuleGrammar, RuleGrammar

__all__ = ["NAMES", "Grammar", "ModuleGrammar", "RuleGrammar"]
