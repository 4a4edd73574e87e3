"""Local alignment as a transducer."""

import numpy as np

from fstgrad.alphabet import Alphabet
from fstgrad.checks import real_array
from fstgrad.openfst import ArcType, Fst
from fstgrad.transducers.arcs import EPSILON_LABEL, Arcs, final_at, labels, machine


def smith_waterman_transducer(
    alphabet: Alphabet,
    *,
    match: float = -2.0,
    substitute: float = 1.0,
    insert: float = 1.0,
    delete: float = 1.0,
    arc_type: ArcType = "standard",
) -> Fst:
    """Return the Smith-Waterman transducer with linear gaps: the cost of the best local alignment.

    The cost of a pair is min over factors u of y and v of the target of the edit cost of (u, v)
    with these costs; both may be empty, so it is never positive.

    States 0 (before), 1 (aligned), 2 (after, final).  States 0 and 2 skip for nothing: a:eps,
    eps:a.  State 1 aligns: a:a (`match`), a:b (`substitute`), a:eps (`delete`), eps:a (`insert`).
    eps:eps leads from 0 to 1 and from 1 to 2.  3 states, n * (n + 6) + 2 arcs (Figure 3b of
    Cortes et al. 2018).

    Parameters
    ----------
    alphabet : Alphabet
        n symbols.
    match, substitute, insert, delete : float
        Costs; a negative one is a reward.
    arc_type : {"standard", "log64"}
        "standard" rounds costs to float32, "log64" keeps them.

    Examples
    --------
    >>> from fstgrad import Alphabet
    >>> smith_waterman_transducer(Alphabet("acgt")).num_states()
    3
    """
    costs = {"match": match, "substitute": substitute, "insert": insert, "delete": delete}
    match, substitute, insert, delete = (
        float(real_array(name, cost, ())) for name, cost in costs.items()
    )
    label = labels(alphabet)
    align = np.full((len(label), len(label)), substitute)
    np.fill_diagonal(align, match)
    skipping = np.array([[0], [2]])
    return machine(
        arc_type,
        final_at(3, 2),
        [
            Arcs(skipping, label, EPSILON_LABEL, 0.0, skipping),
            Arcs(skipping, EPSILON_LABEL, label, 0.0, skipping),
            Arcs(1, label[:, None], label, align, 1),
            Arcs(1, label, EPSILON_LABEL, delete, 1),
            Arcs(1, EPSILON_LABEL, label, insert, 1),
            Arcs([0, 1], EPSILON_LABEL, EPSILON_LABEL, 0.0, [1, 2]),
        ],
    )
