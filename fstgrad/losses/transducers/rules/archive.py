"""Write a transducer with the names of its rules to an archive; read the names back.

The entry NAME is the transducer.  The entry NAME.rules has the same states, arcs, input labels and
weights, and writes the names of rules instead of the target.  Its output label is 0 for a copy or
an edit, and 1 for the arcs of a rule after the first.
"""

import os
from dataclasses import replace

import numpy as np

from fstgrad.core.alphabet import EPSILON_SYMBOL, Alphabet
from fstgrad.core.errors import FstError
from fstgrad.losses.transducers.rules.compilation import CONTINUED, NO_RULE, RuleTransducer
from fstgrad.losses.transducers.rules.syntax import CONTINUED_NAME
from fstgrad.openfst import (
    RULES,
    ArcType,
    FstArrays,
    from_arrays,
    over_alphabet,
    read_rule_names,
    to_arrays,
    write_archive,
)

_LABELS = (EPSILON_SYMBOL, CONTINUED_NAME)  # before the names of rules


def write_rules(
    path: str | os.PathLike[str], name: str, transducer: RuleTransducer, arc_type: ArcType
) -> None:
    """Write a transducer and the names of its rules to an archive, as `name` and `name`.rules.

    "standard" rounds costs to float32.  Without rules, there is only the entry `name`.
    """
    names = {
        text: label for label, text in enumerate(dict.fromkeys(transducer.names), len(_LABELS))
    }
    label_of = {k: names[text] for k, text in enumerate(transducer.names)}
    label_of |= {CONTINUED: 1, NO_RULE: 0}
    symbols = ((0, EPSILON_SYMBOL), *enumerate(transducer.alphabet, start=1))
    fst = replace(transducer.fst, arc_type=arc_type, input_symbols=symbols, output_symbols=symbols)
    rules = replace(
        fst,
        olabel=np.array([label_of[k] for k in transducer.rule.tolist()], dtype=np.int64),
        output_symbols=tuple(enumerate((*_LABELS, *names))),
    )
    entries = {name: fst, name + RULES: rules} if names else {name: fst}
    write_archive(path, {key: from_arrays(arrays) for key, arrays in entries.items()})


def read_rules(
    path: str | os.PathLike[str], fst: FstArrays, alphabet: Alphabet
) -> RuleTransducer | None:
    """Return the transducer `fst` of an archive with its rules, over `alphabet`; None without them.

    Raises
    ------
    FstError
        The names of rules belong to another transducer, or as in `over_alphabet`.
    """
    entry = read_rule_names(path)
    if entry is None:
        return None
    rules = to_arrays(entry)
    same = ("source", "ilabel", "nextstate", "weight")
    names = tuple(name for _, name in rules.output_symbols or ())
    if names[: len(_LABELS)] != _LABELS or not all(
        np.array_equal(getattr(rules, field), getattr(fst, field)) for field in same
    ):
        raise FstError(
            f"{path}: the entry that ends in {RULES} names the rules of another transducer; write "
            "both again with fstgrad grammar, or leave it out"
        )
    arcs = replace(fst, arc_type="log64", weight=np.arange(fst.num_arcs, dtype=np.float64))
    kept = over_alphabet(arcs, alphabet)
    arc = kept.weight.astype(np.int64)
    label = rules.olabel[arc]
    rule = np.where(label >= len(_LABELS), label - len(_LABELS), NO_RULE - label)
    return RuleTransducer(
        replace(kept, weight=fst.weight[arc]), alphabet, names[len(_LABELS) :], rule
    )
