"""Losses written as grammars, and how a grammar is found, loaded, checked and updated.

A grammar is a file of rules (`NAME.rules`, see `fstgrad.transducers.rules.syntax`), or a Python
module with

- a docstring: one line of summary, then what costs what, then its source;
- `build(alphabet=None)`, which returns a pynini.Fst: it reads the hypothesis, writes the target,
  and its weights are costs;
- optionally `ALPHABET`, the symbols it is made for; `EXAMPLES`, rows (hypothesis, target, loss);
  `SEMIRING`, "tropical" (the default) or "probability".

The grammars here are found by name, any other by the path of its file (`Grammar.load`).

Index
-----
- `keyboard`, `qwertz`, `azerty`, `dvorak` : slips to neighbouring keys (`layouts`).
- `damerau`, `caseless`, `unicode_forms` : transpositions; without case; width, case, diacritics.
- `german`, `french`, `names` : spellings of German, of French, of English names.
- `ocr`, `fraktur` : characters that look alike, also in black letter.
- `phonetic`, `ipa`, `articulation` : sounds by articulation, in ARPAbet, IPA, PanPhon's features.
- `morphology` : forms of one word.
- `number_formats`, `measures` : how numbers, dates, units and money are written.
- `dna`, `protein`, `codons` : mutations; classes of residues; protein against DNA.
- `smiles`, `code_tokens`, `melody` : molecules, programs, tunes, token by token.
- `pieces` : what they are put together from.  `templates` : what a new one begins with.
- `checking`, `updating` : examples and their coverage; new values in a file.
"""

from fstgrad.grammars.loading import NAMES, Grammar, ModuleGrammar, RuleGrammar

__all__ = ["NAMES", "Grammar", "ModuleGrammar", "RuleGrammar"]
