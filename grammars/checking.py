"""Check a grammar against its examples: wrong ones, and the parts that they use or leave out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fstgrad.core.alphabet import Alphabet
from fstgrad.costs import Explanation, PairTransducer, pair_transducer
from fstgrad.costs.explain import explained
from fstgrad.costs.ties import Ties
from fstgrad.grammars.loading import Grammar
from fstgrad.losses import RuleLoss, TransducerLoss
from fstgrad.openfst import connect

_TOLERANCE = 1e-6  # absolute; costs of a pynini grammar are float32


@dataclass(frozen=True)
class Checked:
    """An example and its result under the grammar.

    Attributes
    ----------
    y, target, expected : the hypothesis, the target and the loss of the example.
    value : the loss under the grammar.
    explanation : the two cheapest alignments.
    rivals : targets of other examples to which y has the same finite loss.
    """

    y: str
    target: str
    expected: float
    value: float
    explanation: Explanation
    rivals: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        """Whether the loss equals that of the example."""
        return self.value == self.expected or abs(self.value - self.expected) <= _TOLERANCE

    @property
    def is_ambiguous(self) -> bool:
        """Whether several alignments have the smallest cost."""
        return self.explanation.is_ambiguous


@dataclass(frozen=True)
class Coverage:
    """The parts of the transducer that the cheapest alignments of the examples use.

    Attributes
    ----------
    arcs, used_arcs : int, the numbers of all arcs and of used arcs.
    classes : (name, number of uses) of each rule, and of edits by kind and cost.
    unreachable : int, the number of states that are on no path from the start to a final state.
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
    """Return the loss of a grammar, its checked examples, and their coverage.

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
    """Return whether an arc is a rule or an edit, not a free copy or a step within a rule."""
    if transducer.rule[event] >= 0 or transducer.cost[event] != 0:
        return True
    return not is_rules and bool(transducer.ilabel[event] != transducer.olabel[event])


def _symbols(text: str, loss: TransducerLoss) -> list[str]:
    return list(text) if loss.alphabet.is_characters else text.split()
