r"""Read, check and compile grammars of rules, which are text and run no code.

Reading order
-------------
- `syntax` : the parts of a line.
- `ruleset` : the classes, features and rules of a file.
- `compilation` : from rules to a transducer.

>>> from fstgrad.losses.transducers.rules import RuleSet
>>> rules = RuleSet.parse("alphabet = abc\na -> b 0.25 / _ c")
>>> [rule.name for rule in rules.rules]
['a -> b / _ c']
"""

from fstgrad.losses.transducers.rules.compilation import RuleTransducer, compile_rules
from fstgrad.losses.transducers.rules.ruleset import RuleSet
from fstgrad.losses.transducers.rules.syntax import Example, Rule

__all__ = ["Example", "Rule", "RuleSet", "RuleTransducer", "compile_rules"]
