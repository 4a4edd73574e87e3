"""Inference in a fitted model: conditionals, samples, log-partition, the strongest sets."""

import copy
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from fstgrad.core import checks
from fstgrad.core.checks import FloatArray, Seed
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.labels import check_same_rows
from fstgrad.grm import (
    calibration,
    conditionals,
    normalization,
    partition,
    preparation,
    sampling,
)
from fstgrad.grm import covariates as extra
from fstgrad.grm.design import intercept_coordinates, terms_of
from fstgrad.grm.scoring import ScoringMixin
from fstgrad.plot.counts import add_word_graph

if TYPE_CHECKING:
    from fstgrad.grm.parameters import Parameters


class WeightedSet(NamedTuple):
    """A set of variables, by name and by column, and its coefficient theta_S."""

    names: tuple[str, ...]
    members: tuple[int, ...]
    value: float


class InferenceMixin(ScoringMixin):
    """Methods of a fitted model, computed from `parameters_` and `names_`."""

    def node_conditional(self, s: int, x: npt.ArrayLike) -> conditionals.NodeConditional:
        """Return p(x_s | all other x), with its `log_prob`, `mean`, `sample` and `log_partition`.

        Parameters
        ----------
        s : int
            The column.
        x : (p,) array-like
            The values of all variables; x[s] is not used.
        """
        parameters = self._joint()
        node = int(checks.index_array("s", s, parameters.features, ()))
        return conditionals.node_conditional(parameters, node, x)

    def radial_conditional(self, v: npt.ArrayLike) -> conditionals.RadialConditional:
        """Return the density along x = z v for v (p,), with its `log_density` and `sample`."""
        return conditionals.radial_conditional(self._joint(), v)

    def is_normalizable(self) -> normalization.Normalizability:
        """Return whether the model can be normalised, with a certificate or a counterexample."""
        return normalization.is_normalizable(self._joint())

    def gibbs(
        self,
        k: int,
        rng: Seed = None,
        *,
        burn_in: int = 200,
        thin: int = 5,
        chains: int = 4,
        offset: float = 0.0,
    ) -> sampling.GibbsSample:
        """Return k Gibbs draws with their R-hat and effective sample sizes.

        Parameters
        ----------
        k : int
        rng : Generator, int or None
        burn_in, thin : int
            Each chain makes `burn_in` sweeps first, then `thin` sweeps before each draw.
        chains : int
        offset : float
            The offset of the drawn rows, for example the log of their exposure.

        Raises
        ------
        InfeasibleError
            The model is known to have no normalizer.
        NotSupportedError
            A conditional cannot be drawn, for example if its mean exceeds a million.
        """
        parameters = self._joint().at_offset(float(checks.real_array("offset", offset, ())))
        return sampling.gibbs(parameters, k, rng, burn_in=burn_in, thin=thin, chains=chains)

    def sample(self, k: int, rng: Seed = None) -> FloatArray:
        """Return k Gibbs draws (k, p) float64, with the defaults of `gibbs`."""
        return self.gibbs(k, rng).values

    def log_partition(
        self,
        method: Literal["auto", "exact", "ais"] = "auto",
        *,
        samples: int = 200,
        steps: int = 200,
        rng: Seed = None,
    ) -> partition.PartitionEstimate:
        """Return log Z in nats.

        It is exact for independent variables, for the Gaussian base with k <= 2 and, unless the sum
        is too large, for counts with p <= 3.  Otherwise it is an estimate with a standard error, by
        annealed importance sampling with `samples` chains of `steps` steps.

        Raises
        ------
        InvalidInputError
            method is "exact", and there is no exact method for the model.
        InfeasibleError
            The model is known to have no normalizer.
        """
        return partition.log_partition(self._joint(), method, samples=samples, steps=steps, rng=rng)

    def top_interactions(
        self,
        order: int,
        top: int = 10,
        *,
        sign: Literal["both", "positive", "negative"] = "both",
    ) -> list[WeightedSet]:
        """Return up to `top` sets of `order` variables, the strongest coefficients first.

        sign : "both" ranks by absolute value; the others select coefficients of one sign.
        For order 1, all single variables are ranked by theta_s, the largest first (with sign
        "negative", the smallest first).
        """
        parameters = self._fitted()
        order = checks.positive_integer("order", order)
        top = checks.positive_integer("top", top)
        checks.one_of("sign", sign, ("both", "positive", "negative"))
        names = self.names_
        sets, values = self._of_order(parameters, order)
        if order == 1:
            key, wrong = (values if sign == "negative" else -values), np.zeros(values.shape)
        else:
            key = {"both": -np.abs(values), "positive": -values, "negative": values}[sign]
            wrong = {"both": values == 0, "positive": values <= 0, "negative": values >= 0}[sign]
        ranked = [i for i in np.argsort(key, kind="stable").tolist() if not wrong[i]]
        return [
            WeightedSet(
                tuple(names[s] for s in sets[i].tolist()), tuple(sets[i].tolist()), float(values[i])
            )
            for i in ranked[:top]
        ]

    def at(self, covariates: npt.ArrayLike | None = None, *, offset: float = 0.0) -> Any:
        """Return the joint model of rows with these covariates and this offset.

        Parameters
        ----------
        covariates : (d,) array-like, optional
            As in `fit`; required if the fit had covariates.
        offset : float
            As in `fit`.

        Returns
        -------
        GeneralizedRootModel
            A copy without covariates and offset, whose intercepts include both; for `gibbs`,
            `log_partition`, `node_conditional` and other methods.

        Examples
        --------
        >>> from fstgrad import GeneralizedRootModel
        >>> rng = np.random.default_rng(0)
        >>> z = rng.normal(size=(300, 1))
        >>> X = rng.poisson(np.exp(z * [0.5, -0.5, 0.0]))
        >>> model = GeneralizedRootModel(k=2, alpha=0.2).fit(X, covariates=z)
        >>> draws = model.at([2.0]).sample(50, rng=0)
        >>> bool(draws[:, 0].mean() > draws[:, 1].mean())
        True
        """
        parameters = self._fitted()
        given = None if covariates is None else checks.real_array("covariates", covariates, (None,))
        z = extra.checked(given if given is None else given[None], 1, parameters.covariates)[0]
        found = copy.copy(self)
        shift = float(checks.real_array("offset", offset, ()))
        found.parameters_ = parameters.at_offset(shift, z)
        found.uses_offset_, found.covariate_names_ = False, None
        return found

    def calibrate(
        self,
        X: Any,
        *,
        sweeps: int = 1000,
        chains: int = 200,
        rng: Seed = 0,
        sample_weight: npt.ArrayLike | None = None,
    ) -> calibration.Calibration:
        """Change the intercepts until samples have the mean statistics of X; return what remains.

        A pseudo-likelihood fits each node given the others.  If the family is wrong for the data,
        samples of the joint distribution may have other means.  This method solves the likelihood
        equations of the intercepts, E_model[t] = E_data[t], by stochastic approximation.  It
        replaces the parameters of the model; the interactions do not change.  The cost is sweeps *
        chains draws of every variable, up to three times.

        Parameters
        ----------
        X : (n, p) array-like, CSR matrix or data frame
            The data of the fit.
        sweeps : int
            The number of Gibbs sweeps, each with one step of the intercepts.
        chains : int
            The number of persistent chains; half start at rows of X, half at draws of the
            independent model.
        rng : Generator, int or None
            For the chains.
        sample_weight : (n,) array-like, optional
            As in `fit`.

        Returns
        -------
        Calibration
            `parameters`, and `gap` (p, c): |E_model[t] - E_data[t]| over the second half of the
            sweeps, in standard deviations of the data.  A large gap means that the chains have not
            mixed, or that the family cannot have these means; in the second case, use another base.

        Raises
        ------
        InvalidInputError
            The model was fitted with an offset or covariates.
        InfeasibleError
            The model is known to have no normalizer.
        """
        parameters = self._joint()
        if self.uses_offset_:
            raise InvalidInputError(
                "calibrate: the model was fitted with an offset, so that its rows have different "
                "means; fit a model without an offset to rows of the same exposure"
            )
        check_same_rows(X=X, sample_weight=sample_weight)
        x = self._validated(X, reset=False)  # type: ignore[attr-defined]
        terms = terms_of(parameters.k, self.interactions)  # type: ignore[attr-defined]
        found = calibration.calibrate(
            parameters,
            x.toarray(),
            preparation.sample_weights(sample_weight, x.shape[0]),
            intercept_coordinates(terms, parameters.family.free_coordinates(parameters.k)),
            sweeps=checks.positive_integer("sweeps", sweeps),
            chains=checks.positive_integer("chains", chains),
            rng=checks.generator(rng),
        )
        self.parameters_ = found.parameters
        return found

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return the names of the columns, (p,)."""
        self._fitted()
        return np.array(self.names_, dtype=object)

    def to_networkx(self, top: int | None = None) -> Any:
        """Return a networkx graph of the sets: all, or the `top` strongest of each size.

        The edge attribute `weight` is the coefficient of the pair, 0 if there is none.  A larger
        set joins each pair of its members by an edge, and each of these edges lists it in its
        attribute `sets` as (names, value).
        """
        networkx = checks.extra("networkx", "grm", "to_networkx")
        if top is not None:
            top = checks.positive_integer("top", top)
        parameters = self._fitted()
        graph = networkx.Graph()
        graph.add_nodes_from(self.names_)
        for order in range(2, parameters.k + 1):
            for found in self.top_interactions(order, top or max(1, parameters.flat.values.size)):
                for i, a in enumerate(found.names):
                    for b in found.names[i + 1 :]:
                        if not graph.has_edge(a, b):
                            graph.add_edge(a, b, weight=0.0, sets=[])
                        if order == 2:
                            graph[a][b]["weight"] += found.value
                        else:
                            graph[a][b]["sets"].append((found.names, found.value))
        return graph

    def plot(self, top: int = 30, ax: Any = None) -> Any:
        """Draw the graph of the `top` strongest sets of each size; return the matplotlib axes.

        ax : axes to draw on; by default, those of a new figure.
        """
        checks.extra("networkx", "grm", "plot")
        pyplot = checks.extra("matplotlib.pyplot", "plot", "plot")
        if ax is not None:
            checks.instance("ax", ax, pyplot.Axes, "the axes of a figure of matplotlib")
        graph = self.to_networkx(top)
        axes = pyplot.subplots()[1] if ax is None else ax
        add_word_graph(axes, graph.edge_subgraph(graph.edges))
        return axes

    def _of_order(self, parameters: "Parameters", order: int) -> tuple[Any, FloatArray]:
        if order == 1:
            return np.arange(parameters.features)[:, None], parameters.intercepts[:, 0]
        found = [i for i in parameters.interactions if i.term.size == order]
        none = np.zeros((0, order), dtype=np.int64)
        return (
            np.concatenate([none, *(i.sets for i in found)]),
            np.concatenate([np.zeros(0), *(i.values for i in found)]),
        )

    def _joint(self) -> "Parameters":
        """Return the parameters; raise InvalidInputError for a model with covariates.

        With covariates, each row has a different joint distribution.
        """
        parameters = self._fitted()
        if parameters.covariates:
            raise InvalidInputError(
                f"the model was fitted with {parameters.covariates} covariate(s), so that its rows "
                "have different distributions; use at(covariates), the model for given values"
            )
        return parameters
