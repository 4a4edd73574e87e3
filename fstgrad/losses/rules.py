"""RuleLoss: the loss of a grammar of rules, a text that runs no code."""

from dataclasses import replace

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import instance
from fstgrad.losses.transducer import TransducerLoss
from fstgrad.losses.transducers.rules import RuleSet, RuleTransducer, compile_rules
from fstgrad.openfst import FstArrays


class RuleLoss(TransducerLoss):
    r"""The least cost in nats to turn the hypothesis into the target by copies, edits and rules.

    Parameters
    ----------
    rules : str or RuleSet
        The grammar, in the syntax of `fstgrad.losses.transducers.rules.syntax`.
    alphabet : Alphabet, optional
        By default that of the rules.  Rules with symbols outside it are ignored.

    Raises
    ------
    FstError
        Some lines are wrong (the message lists each with its error), or the transducer is too
        large.
    InvalidInputError
        Neither the grammar nor the caller gives an alphabet.

    Examples
    --------
    >>> loss = RuleLoss("alphabet = chs\nsch -> sh 0.25")
    >>> loss("sch", "sh"), loss("ch", "sh")
    (0.25, 1.0)
    """

    def __init__(self, rules: str | RuleSet, alphabet: Alphabet | None = None) -> None:
        instance("rules", rules, str | RuleSet, "the text of a grammar, or a RuleSet")
        if alphabet is not None:
            instance("alphabet", alphabet, Alphabet, "an Alphabet")
        self.rules = RuleSet.parse(rules) if isinstance(rules, str) else rules
        self.compiled: RuleTransducer = compile_rules(self.rules, alphabet)
        fst, own = self.compiled.fst, self.compiled.alphabet
        plain = replace(fst, olabel=np.where(fst.olabel > len(own), 0, fst.olabel))
        super().__init__(plain, own)

    @property
    def marked(self) -> FstArrays:
        """The transducer, with the output label n + 1 + k on an arc of rule k."""
        return self.compiled.fst
