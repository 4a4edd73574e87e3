r"""Read, check and compile grammars of rules, which are text and run no code.

Reading order
-------------
- `syntax` : the parts of a line.
- `ruleset` : the classes, features and rules of a file.
- `compilation` : from rules to a transducer.
- `archive` : transducers with the names of their rules in files.

>>> from fstgrad.losses.transducers.rules import RuleSet
>>> rules = RuleSet.parse("alphabet = abc\na -> b 0.25 / _ c")
>>> [rule.name for rule in rules.rules]
['a -> b / _ c']
"""

from fstgrad.losses.transducers.rules.archive import read_rules, write_rules
from fstgrad.losses.transducers.rules.compilation import (
    CONTINUED,
    NO_RULE,
    RuleTransducer,
    compile_rules,
)
from fstgrad.losses.transducers.rules.ruleset import RuleSet
from fstgrad.losses.transducers.rules.syntax import CONTINUED_NAME, Example, Rule

__all__ = [
    "CONTINUED",
    "CONTINUED_NAME",
    "NO_RULE",
    "Example",
    "Rule",
    "RuleSet",
    "RuleTransducer",
    "compile_rules",
    "read_rules",
    "write_rules",
]
