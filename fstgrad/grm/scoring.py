"""How well a model fits rows of data: scores, and a report of samples and sets."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray, Seed, instance, positive_integer
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.labels import check_same_rows
from fstgrad.core.sequences import items
from fstgrad.grm import covariates as extra
from fstgrad.grm import preparation, report

if TYPE_CHECKING:
    from fstgrad.grm.parameters import Parameters


class ScoringMixin:
    """Methods that compare a fitted model with rows of data."""

    parameters_: "Parameters"
    uses_offset_: bool
    names_: list[str]
    covariate_names_: list[str] | None

    def report(
        self,
        X: Any,
        *,
        samples: int = 2000,
        rng: Seed = 0,
        offset: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
        bootstrap: int = 0,
        top: int = 10,
    ) -> report.FitReport:
        """Return a comparison of Gibbs draws with data X (n, p), and the strongest sets.

        `print(model.report(X))` shows means, variances, shares of zeros, rank correlations and
        maximum mean discrepancies, then the sets with their coefficients and the rows of X that
        support them.

        Parameters
        ----------
        X : (n, p) array-like, CSR matrix or data frame
            The data of the fit or other rows.
        samples : int
            The number of draws.  If the rows have offsets or covariates, each draw has those of a
            random row of X.
        rng : Generator, int or None
            For the draws and the resampled rows.
        offset, covariates
            As in `fit`; required if the fit had them.
        bootstrap : int
            The number of fits to rows drawn with replacement, with the settings of the model; 0 for
            none.  The report then has the share of fits that select each set with the same sign.
        top : int
            The number of sets of each size in the report.
        """
        self._fitted()
        check_same_rows(X=X, offset=offset, covariates=covariates)
        x = self._validated(X, reset=False)  # type: ignore[attr-defined]
        shift = None
        if self.uses_offset_ or self.parameters_.covariates or offset is not None:
            shift = self._shifts(x.shape[0], offset, covariates)
        elif covariates is not None:
            extra.checked(covariates, x.shape[0], 0)
        given = {"offset": offset, "covariates": covariates}
        return report.fit_report(
            self, x, shift, given, samples=samples, rng=rng,
            bootstrap=checks.positive_integer("bootstrap", bootstrap, minimum=0),
            top=checks.positive_integer("top", top, minimum=0),
        )  # fmt: skip

    def supporting_rows(self, X: Any, names: Sequence[str], top: int = 5) -> list[int]:
        """Return up to `top` rows of X with the largest |product| of the columns `names`.

        The largest first; rows with product 0 are left out.
        """
        self._fitted()
        x = self._validated(X, reset=False)  # type: ignore[attr-defined]
        names = items("names", names)
        for name in names:
            instance("one of names", name, str, "a str")
        top = positive_integer("top", top)
        unknown = [name for name in names if name not in self.names_]
        if unknown:
            raise InvalidInputError(f"names has {unknown[0]!r}, which is not a column of the model")
        return report.supporting_rows(self, x.toarray(), tuple(names), top)

    def score(
        self,
        X: Any,
        y: None = None,
        *,
        sample_weight: npt.ArrayLike | None = None,
        offset: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
    ) -> float:
        """Return the weighted mean over rows, and the mean over nodes, of log p(x_s | all other x).

        In nats; the arguments are those of `fit`.
        """
        check_same_rows(X=X, sample_weight=sample_weight)
        found = self.pseudo_log_likelihood(X, offset=offset, covariates=covariates)
        weights = preparation.sample_weights(sample_weight, len(found))
        used = weights > 0
        return float(weights[used] @ found[used] / weights.sum() / self.parameters_.features)

    def pseudo_log_likelihood(
        self,
        X: Any,
        *,
        offset: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
    ) -> FloatArray:
        """Return sum_s log p(x_s | all other x) of each row, (n,) float64, in nats.

        Parameters
        ----------
        X : (n, p) array-like, CSR matrix or data frame
            As in `fit`.
        offset : (n,) array-like, optional
            As in `fit`; required if the fit had an offset.
        covariates : (n, d) array-like, optional
            As in `fit`; required if the fit had covariates.

        Raises
        ------
        InvalidInputError
            X, the offset or the covariates are invalid or missing, or a log-likelihood overflows.
        """
        parameters = self._fitted()
        check_same_rows(X=X, offset=offset, covariates=covariates)
        x = self._validated(X, reset=False)  # type: ignore[attr-defined]
        shift = self._shifts(x.shape[0], offset, covariates)
        parts = [
            parameters.conditional_log_likelihoods(x[part].toarray(), shift[part]).sum(axis=1)
            for part in parameters.chunks(x.shape[0])
        ]
        found = np.concatenate(parts)
        if np.isnan(found).any():
            raise InvalidInputError(
                f"row {np.flatnonzero(np.isnan(found))[0]} of X has no log-likelihood: sums of "
                "the model's parameters overflow; fit it again"
            )
        return found

    def score_samples(
        self,
        X: Any,
        *,
        offset: npt.ArrayLike | None = None,
        covariates: npt.ArrayLike | None = None,
    ) -> FloatArray:
        """Return what `pseudo_log_likelihood` returns, (n,), in nats."""
        return self.pseudo_log_likelihood(X, offset=offset, covariates=covariates)

    def _shifts(
        self, rows: int, offset: npt.ArrayLike | None, covariates: npt.ArrayLike | None
    ) -> FloatArray:
        """Return what offsets and covariates of the rows add to eta_1 of each node, (n, p)."""
        parameters = self._fitted()
        if offset is None and self.uses_offset_:
            raise InvalidInputError(
                "the model was fitted with an offset, and offset is None; give the offsets of the "
                "rows, zeros for an exposure of 1"
            )
        extra.check_names(covariates, self.covariate_names_)
        z = extra.checked(covariates, rows, parameters.covariates)
        return parameters.shifts(preparation.offsets(offset, rows, parameters.family), z)

    def _fitted(self) -> "Parameters":
        if not hasattr(self, "parameters_"):
            from sklearn.exceptions import NotFittedError

            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit(X) first")
        return self.parameters_
