"""Learning the costs of a transducer: from pairs of strings, or from which candidate is right.

Reading order: `aligner` (a transducer as pairs of strings are aligned; `kernels` are its loops),
`ties` (which arcs share a weight, which weights sum to 1), `em` and `fit` (maximum likelihood),
`result` and `tables` (what was learned, as a transducer and as a table), `explain` (alignments);
`ranking` (costs that rank the right candidate first), `gradients` (objectives of strings).
"""

from fstgrad.costs.aligner import Aligner, Pairs
from fstgrad.costs.explain import Alignment, Explanation, Operation, explain
from fstgrad.costs.fit import Schedule, fit_costs
from fstgrad.costs.gradients import CostGradient, loss_gradient, softmax_margin_gradient
from fstgrad.costs.ranking import Question, Ranking, RankingFit, fit_ranking
from fstgrad.costs.result import CostFit, LearnedCosts
from fstgrad.costs.source import aligner_of
from fstgrad.costs.tables import CostRow, with_costs

__all__ = [
    "Aligner", "Alignment", "CostFit", "CostGradient", "CostRow", "Explanation", "LearnedCosts",
    "Operation", "Pairs", "Question", "Ranking", "RankingFit", "Schedule", "aligner_of", "explain",
    "fit_costs", "fit_ranking", "loss_gradient", "softmax_margin_gradient", "with_costs",
]  # fmt: skip
