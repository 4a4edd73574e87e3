"""What the examples of a grammar say about it: which are wrong, what they use and leave out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fstgrad.alphabet import Alphabet
from fstgrad.costs import Explanation, PairTransducer, pair_transducer
from fstgrad.costs.explain import explained
from fstgrad.costs.ties import Ties
from fstgrad.grammars.loading import Grammar
from fstgrad.losses import RuleLoss, TransducerLoss
from fstgrad.openfst import connect

_TOLERANCE = 1e-6  # costs of a pynini grammar are float32


@dataclass(frozen=True)
class Checked:
    """An example and what the grammar makes of it.

    Attributes
    ----------
    y, target, expected : the example.
    value : the loss.
    explanation : its two cheapest alignments; None of a rational loss with smoothing.
    rivals : targets of other examples whose loss is the same, though they are not this target.
    """

    y: str
    target: str
    expected: float
    value: float
    explanation: Explanation
    rivals: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether the loss is what the example says."""
        return self.value == self.expected or abs(self.value - self.expected) <= _TOLERANCE

    @property
    def is_ambiguous(self) -> bool:
        """Whether several alignments are the cheapest."""
        return self.explanation.is_ambiguous


@dataclass(frozen=True)
class Coverage:
    """What the cheapest alignments of the examples use.

    Attributes
    ----------
    arcs, used_arcs : int, those of the transducer, and those that are used.
    classes : (name, how often used) of rules, and of edits by kind and cost.
    unreachable : int, states that are on no path.
    """

    arcs: int
    used_arcs: int
    classes: tuple[tuple[str, int], ...]
    unreachable: int

    @property
    def unused(self) -> list[str]:
        """The classes that no example uses."""
        return [name for name, count in self.classes if not count]


def check_examples(
    grammar: Grammar, alphabet: Alphabet | None = None
) -> tuple[TransducerLoss, list[Checked], Coverage]:
    """Return the loss of a grammar, its examples checked, and their coverage.

    Raises
    ------
    FstgradError
        The grammar cannot be built, or an example has a symbol outside the alphabet.
    """
    loss = grammar.loss(alphabet)
    transducer = pair_transducer(loss)
    targets = sorted({target for _, target, _ in grammar.examples})
    values = {
        y: {target: loss(_symbols(y, loss), _symbols(target, loss)) for target in targets}
        for y in sorted({y for y, _, _ in grammar.examples})
    }
    checked = [
        Checked(
            y,
            target,
            expected,
            values[y][target],
            explained(transducer, _symbols(y, loss), _symbols(target, loss), 2),
            _rivals(values[y], target),
        )
        for y, target, expected in grammar.examples
    ]
    return loss, checked, _coverage(loss, transducer, checked)


def _rivals(values: dict[str, float], target: str) -> tuple[str, ...]:
    own = values[target]
    return tuple(
        other
        for other, value in values.items()
        if other != target and np.isfinite(own) and abs(value - own) <= _TOLERANCE
    )


def _coverage(
    loss: TransducerLoss, transducer: PairTransducer, checked: Sequence[Checked]
) -> Coverage:
    events = np.zeros(len(transducer.cost), dtype=np.int64)
    for example in checked:
        for alignment in example.explanation.alignments[:1]:
            for step in alignment.operations:
                events[list(step.events)] += 1
    ties = Ties.of(transducer, "cost", "nothing")
    used: Counter[str] = Counter()
    for k, event in zip(ties.class_of, ties.events, strict=True):
        if event < transducer.num_arcs and _counts(
            transducer, int(event), isinstance(loss, RuleLoss)
        ):
            used[ties.names[k]] += int(events[event])
    if isinstance(loss, RuleLoss):
        used.update(dict.fromkeys(loss.compiled.names, 0))
    whole = sum(factor.num_states() for factor in loss.factors)
    on_paths = sum(connect(factor).num_states() for factor in loss.factors)
    return Coverage(
        transducer.num_arcs,
        int((events[: transducer.num_arcs] > 0).sum()),
        tuple(used.items()),
        whole - on_paths,
    )


def _counts(transducer: PairTransducer, event: int, is_rules: bool) -> bool:
    """Whether an arc is a rule or an edit: not a free copy, nor a step of a rule."""
    if transducer.rule[event] >= 0 or transducer.cost[event] != 0:
        return True
    return not is_rules and bool(transducer.ilabel[event] != transducer.olabel[event])


def _symbols(text: str, loss: TransducerLoss) -> list[str]:
    return list(text) if loss.alphabet.is_characters else text.split()
