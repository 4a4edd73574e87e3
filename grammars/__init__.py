"""Losses written as grammars; find, load, check and update grammars.

A grammar is a file of rules (`NAME.rules`, see `fstgrad.losses.transducers.rules.syntax`), or a
Python module with

- a docstring: a one-line summary, the costs, and their source;
- `build(alphabet=None)`, which returns a pynini.Fst that reads the hypothesis and writes the target
  and whose weights are costs;
- optionally `ALPHABET`, its default symbols; `EXAMPLES`, rows (hypothesis, target, loss); and
  `SEMIRING`, "tropical" (the default) or "probability".

`Grammar.load` finds the grammars of this folder by name, and any other grammar by its path.

Reading order
-------------
- `loading` : find and load grammars.
- `pieces` : the building blocks of grammars.
- `keyboard` : slips to neighbouring keys, for the layouts qwerty, qwertz, azerty and dvorak.
- `damerau`, `caseless`, `unicode_forms` : transpositions; ignored case; width, case, diacritics.
- `german`, `french`, `names` : spellings of German, of French, of English names.
- `ocr`, `fraktur` : characters of similar shape, in roman type and in black letter.
- `phonetic`, `ipa`, `articulation` : sounds by articulation, in ARPAbet, IPA, PanPhon's features.
- `morphology` : inflected forms of a word.
- `number_formats`, `measures` : notations of numbers, dates, units and money.
- `dna`, `protein`, `codons` : mutations; classes of residues; protein against DNA.
- `smiles`, `code_tokens`, `melody` : molecules, programs and tunes as tokens.
- `templates` : the text of new grammars.
- `checking` : check examples and their coverage; update the examples of a file.
"""

from fstgrad.grammars.loading import NAMES, Grammar, ModuleGrammar, RuleGrammar

__all__ = ["NAMES", "Grammar", "ModuleGrammar", "RuleGrammar"]
