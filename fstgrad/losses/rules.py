"""The loss of a grammar of rules: data that runs no code."""

from dataclasses import replace

import numpy as np

from fstgrad.alphabet import Alphabet
from fstgrad.checks import instance
from fstgrad.losses.transducer import TransducerLoss
from fstgrad.openfst import FstArrays
from fstgrad.transducers.rules import RuleSet, RuleTransducer, compile_rules


class RuleLoss(TransducerLoss):
    r"""The cheapest way from the hypothesis to the target by copies, edits and rules.

    Parameters
    ----------
    rules : str or RuleSet
        The text of a grammar of rules, as `fstgrad.transducers.rules.syntax` describes it.
    alphabet : Alphabet, optional
        That of the rules if left out; rules with symbols outside it are left out.

    Raises
    ------
    FstError
        Some lines are wrong; the message has each of them with its error.
    InvalidInputError
        Neither names an alphabet.

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
        """The transducer in which label n + 1 + k on the output side names rule k."""
        return self.compiled.fst
