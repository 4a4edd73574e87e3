"""Learn the costs of a transducer from pairs of strings, or from which candidate is right.

Reading order
-------------
- `kernels`, `pairs` : the compiled loops; pairs of strings as arrays of labels.
- `transducer` : a transducer that scores many pairs, from an FST, a loss or a grammar.
- `parameter_tying` : which arcs share a weight, which weights sum to 1.
- `explain`, `tables` : alignments with rules and costs; learned costs as a table.
- `em`, `learned_costs`, `fit` : maximum likelihood, and its result.
- `ranking` : costs that rank the right candidate first.
- `gradients` : gradients in the costs.
"""

from fstgrad.costs.explain import Alignment, Explanation, Operation, explain
from fstgrad.costs.fit import Schedule, fit_costs
from fstgrad.costs.gradients import CostGradient, loss_gradient, softmax_margin_gradient
from fstgrad.costs.learned_costs import CostFit, LearnedCosts
from fstgrad.costs.pairs import Pairs
from fstgrad.costs.ranking import Question, Ranking, RankingFit, fit_ranking
from fstgrad.costs.tables import CostRow, with_costs
from fstgrad.costs.transducer import PairTransducer, pair_transducer

__all__ = [
    "Alignment",
    "CostFit",
    "CostGradient",
    "CostRow",
    "Explanation",
    "LearnedCosts",
    "Operation",
    "PairTransducer",
    "Pairs",
    "Question",
    "Ranking",
    "RankingFit",
    "Schedule",
    "explain",
    "fit_costs",
    "fit_ranking",
    "loss_gradient",
    "pair_transducer",
    "softmax_margin_gradient",
    "with_costs",
]  # fmt: skip
