"""A conditional random field on one graph, with the interface of scikit-learn estimators."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.axis_labels import (
    axis_labels,
    check_columns,
    check_mask,
    check_positions,
    column_names,
)
from fstgrad.core.checks import (
    FloatArray,
    IntArray,
    Seed,
    generator,
    index_array,
    instance,
    one_of,
    positive_integer,
    positive_number,
    real_array,
)
from fstgrad.core.errors import InvalidInputError, NotSupportedError, warn
from fstgrad.mrf.distribution import PairwiseMRF
from fstgrad.mrf.objectives import UNKNOWN, PersistentChains

SMOOTH = ("exact", "bp", "pseudolikelihood")
METHODS = (*SMOOTH, "hinge", "cd", "pcd")


class MRFClassifier:
    """A model p(y | x) with linear node scores and one edge table, learned from labelings.

        s(y) = sum_i (x_i . W)[y_i] + sum_(ij) T[y_i, y_j]

    Parameters
    ----------
    graph : PairwiseMRF
        A model on the graph of all examples; the scores of its nodes and edges are not used, those
        of its larger factors add to s(y).
    method : {"pseudolikelihood", "exact", "bp", "hinge", "cd", "pcd"}
        The loss, see `fstgrad.mrf.objectives`; "pcd" is "cd" with 5 persistent chains per example.
        The first three are minimised by L-BFGS.  "hinge" (with minimum cuts, for two labels), "cd"
        and "pcd" use gradient steps; the result is the mean of the parameters over the last third
        of the steps.
    l2 : float
        The penalty is l2 / 2 times the squared norm of W and T.
    max_iter : int
        Iterations of L-BFGS, or gradient steps.
    step : float
        Gradient step t = 0, 1, ... has the length step / (I sqrt(1 + t / 10)).
    rng : Generator, int or None
        For "cd" and "pcd".

    Attributes
    ----------
    weights_ : (F, C) float64
        W, in nats per unit of a feature.
    edge_scores_ : (C, C) float64
        T, in nats.
    loss_ : float
        The mean loss per example in the last iteration, with the penalty; NaN for "cd" and "pcd".
    classes_ : (C,) int64, bool or str
        The labels: 0 .. C - 1; or False and True; or the C different str of the fit, sorted.
    feature_names_ : list of str, or None
        The labels of the features, if X is an array with labels or a list of data frames.

    Notes
    -----
    An integer label of -1 is unknown ("exact" and "bp" only): the likelihood of the known labels is
    maximised.

    Examples
    --------
    >>> pair = PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), [(0, 1)])
    >>> X = np.array([[[1.0], [1.0]], [[-1.0], [-1.0]], [[1.0], [-0.1]]])
    >>> MRFClassifier(pair, method="exact").fit(X, [[1, 1], [0, 0], [1, 1]]).predict(X).tolist()
    [[1, 1], [0, 0], [1, 1]]
    """

    def __init__(
        self,
        graph: PairwiseMRF,
        *,
        method: str = "pseudolikelihood",
        l2: float = 0.01,
        max_iter: int = 200,
        step: float = 0.5,
        rng: Seed = None,
    ) -> None:
        self.graph, self.method, self.l2 = graph, method, l2
        self.max_iter, self.step, self.rng = max_iter, step, rng

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the arguments of the constructor, as scikit-learn's `clone` needs them."""
        names = ("graph", "method", "l2", "max_iter", "step", "rng")
        return {name: vars(self)[name] for name in names}

    def set_params(self, **settings: Any) -> "MRFClassifier":
        """Set arguments of the constructor; return self."""
        for name, value in settings.items():
            one_of("setting", name, list(self.get_params()))
            setattr(self, name, value)
        return self

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> "MRFClassifier":
        """Learn from features (N, I, F) float64 and labelings (N, I); return self.

        Labels are integers 0 .. C - 1, bools, or str, C different ones.

        A model on a grid also accepts features (N, height, width, F) and labels (N, height, width).

        Raises
        ------
        InvalidInputError
            A setting, a shape or a label is invalid, or the method needs all labels and some are
            unknown; or the labels are -1, which is an unknown label, and 1.  A UserWarning says
            that they may be coded from -1 if no other node has the last label.
        NotSupportedError
            "hinge" with other numbers of labels than two.
        """
        one_of("method", self.method, METHODS)
        instance("graph", self.graph, PairwiseMRF, "a PairwiseMRF")
        vars(self).update(
            step=positive_number("step", self.step),
            l2=positive_number("l2", self.l2, allow_zero=True),
            max_iter=positive_integer("max_iter", self.max_iter),
        )
        features = self._features(X)
        classes = self._classes(y)
        labels = self._labels(y, features, classes)
        size = self.graph.num_labels
        _check_coding(labels, size)
        if (labels == UNKNOWN).any() and self.method not in ("exact", "bp"):
            raise InvalidInputError(
                f"y has unknown labels, but method {self.method!r} needs every label; use 'exact' "
                "or 'bp'"
            )
        start = np.zeros(features.shape[2] * size + size**2)
        if self.method in SMOOTH:
            from scipy.optimize import minimize

            optimum = minimize(
                self._objective, start, (features, labels, self.method, [{}] * len(labels)),
                jac=True, method="L-BFGS-B", options={"maxiter": self.max_iter},
            )  # fmt: skip
            theta, self.loss_ = optimum.x, float(optimum.fun)
        else:
            theta, self.loss_ = self._descend(start, features, labels)
        self.weights_, self.edge_scores_ = self._split(theta)
        self.classes_ = classes
        self.feature_names_ = column_names(_first_table(X))
        return self

    def _features(self, X: npt.ArrayLike) -> FloatArray:
        _first_table(X)
        array = real_array("X", X, may_have_labels=True)
        if array.ndim == 4 and array.size:
            self.graph.graph.check_image("X", array.shape[1:3])
            array = array.reshape(len(array), -1, array.shape[-1])
        if array.ndim != 3 or array.shape[1] != self.graph.num_nodes or len(array) == 0:
            raise InvalidInputError(
                f"X has shape {np.shape(X)}; give (N, {self.graph.num_nodes}, F), features of "
                "every node of N examples"
            )
        return array

    def _classes(self, y: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the label of each number 0 .. C - 1."""
        names, size = _named_labels(y), self.graph.num_labels
        if names is None:
            return np.arange(size)
        classes = np.unique(names) if names.dtype.kind == "U" else np.array([False, True])
        if len(classes) != size:
            raise InvalidInputError(
                f"y has {len(classes)} different labels, {', '.join(map(repr, classes.tolist()))}, "
                f"and the graph {size}; give as many, or integers 0 .. {size - 1}"
            )
        return classes

    def _labels(
        self, y: npt.ArrayLike, features: FloatArray, classes: npt.NDArray[Any]
    ) -> IntArray:
        """Return the numbers (N, I) of labels, `UNKNOWN` for an unknown one."""
        names = _named_labels(y)
        if (np.dtype(int) if names is None else names.dtype).kind != classes.dtype.kind:
            raise InvalidInputError(
                f"y has the dtype {np.asarray(y).dtype}; the labels of the fit are "
                f"{', '.join(map(repr, classes.tolist()[:10]))}"
            )
        if names is not None:
            y = np.minimum(np.searchsorted(classes, names), len(classes) - 1)
            if (other := names[classes[y] != names]).size:
                raise InvalidInputError(
                    f"y has {other[0].item()!r}; the labels of the fit are "
                    f"{', '.join(map(repr, classes.tolist()[:10]))}"
                )
        labels = index_array("y", y, self.graph.num_labels, lower=UNKNOWN)
        if labels.ndim == 3 and labels.size:
            self.graph.graph.check_image("y", labels.shape[1:])
            labels = labels.reshape(len(labels), -1)
        if labels.shape != features.shape[:2]:
            raise InvalidInputError(
                f"X has {len(features)} examples of {features.shape[1]} nodes, but y has shape "
                f"{labels.shape}; give a label for each node of each example"
            )
        return labels

    def _split(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        size = self.graph.num_labels
        return theta[: -(size**2)].reshape(-1, size), theta[-(size**2) :].reshape(size, size)

    def _model(self, x: FloatArray, weights: FloatArray, table: FloatArray) -> PairwiseMRF:
        return self.graph.with_scores(x @ weights, table)

    def _objective(
        self, theta: FloatArray, X: FloatArray, y: IntArray, method: str,
        options: list[dict[str, Any]],
    ) -> tuple[float, FloatArray]:  # fmt: skip
        """Return the mean loss per example with the penalty, and its gradient by theta."""
        weights, table = self._split(theta)
        value, by_weight, by_table = 0.0, np.zeros_like(weights), np.zeros_like(table)
        for x, labels, more in zip(X, y, options, strict=True):
            part, gradient = self._model(x, weights, table).nll(labels, method, **more)
            value += part
            by_weight += x.T @ gradient.node
            by_table += gradient.edge
        slope = np.concatenate((by_weight.ravel(), by_table.ravel())) / len(X)
        return value / len(X) + self.l2 / 2 * float(theta @ theta), slope + self.l2 * theta

    def _descend(self, theta: FloatArray, X: FloatArray, y: IntArray) -> tuple[FloatArray, float]:
        """Make gradient steps; return the mean of theta over the last third, and the last loss."""
        if self.method == "hinge" and self.graph.num_labels != 2:
            raise NotSupportedError(
                f"method 'hinge' needs two labels, but the graph has {self.graph.num_labels}; use "
                "'exact', 'bp' or 'pseudolikelihood'"
            )
        random = generator(self.rng)
        chains = (
            [PersistentChains(self.graph, 5, random) for _ in X] if self.method == "pcd" else []
        )
        by_method: dict[str, list[dict[str, Any]]] = {
            "hinge": [{}] * len(X),
            "cd": [{"rng": random}] * len(X),
            "pcd": [{"persistent": persistent} for persistent in chains],
        }
        options = by_method[self.method]
        kind = "hinge" if self.method == "hinge" else "cd"
        total, averaged, value = np.zeros_like(theta), 0, float("nan")
        for number in range(self.max_iter):
            value, slope = self._objective(theta, X, y, kind, options)
            rate = self.step / X.shape[1] / np.sqrt(1 + number / 10)
            theta = theta - rate * slope
            if kind == "hinge":
                self._make_submodular(theta)
            if number >= 2 * self.max_iter // 3:
                total, averaged = total + theta, averaged + 1
        return total / averaged, value if kind == "hinge" else float("nan")

    def _make_submodular(self, theta: FloatArray) -> None:
        """Project the table of two labels to the nearest submodular one, in place."""
        _, table = self._split(theta)
        if table.shape == (2, 2):
            excess = table[0, 1] + table[1, 0] - table[0, 0] - table[1, 1]
            table += max(excess, 0.0) / 4 * np.array([[1.0, -1.0], [-1.0, 1.0]])

    def models(self, X: npt.ArrayLike) -> list[PairwiseMRF]:
        """Return the model of each example, from features (N, I, F)."""
        if not hasattr(self, "weights_"):
            raise InvalidInputError("this MRFClassifier has not been fitted; call fit first")
        features, trained = self._features(X), len(self.weights_)
        name = "X[0]" if isinstance(X, list | tuple) else "X"
        check_columns(name, _first_table(X), getattr(self, "feature_names_", None))
        if features.shape[2] != trained:
            raise InvalidInputError(
                f"X has {features.shape[2]} features; the classifier was fitted with {trained}"
            )
        return [self._model(x, self.weights_, self.edge_scores_) for x in features]

    def predict(self, X: npt.ArrayLike, method: str = "max-product") -> npt.NDArray[Any]:
        """Return labelings (N, I), labels of `classes_`, by a method of `PairwiseMRF.decode`."""
        labels = np.stack([model.decode(method).labels for model in self.models(X)])
        named: npt.NDArray[Any] = self.classes_[labels]
        return named

    def predict_proba(self, X: npt.ArrayLike, method: str = "bp", **options: Any) -> FloatArray:
        """Return node marginals (N, I, C) by a method of `PairwiseMRF.infer`."""
        return np.stack([model.infer(method, **options).node for model in self.models(X)])

    def score(self, X: npt.ArrayLike, y: npt.ArrayLike) -> float:
        """Return the share of the known labels in y, those that are not -1, that are predicted."""
        predicted = self.predict(X)
        labels = self._labels(y, self._features(X), self.classes_)
        known = labels != UNKNOWN
        if not known.any():
            raise InvalidInputError("y has no known label; give one that is not -1")
        return float(np.mean((predicted == self.classes_[labels])[known]))

    def __sklearn_tags__(self) -> Any:
        """Return the tags that scikit-learn reads before a search or a validation."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True, one_d_labels=False, multi_output=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=False, three_d_array=True),
        )


def _check_coding(labels: IntArray, size: int) -> None:
    """Raise InvalidInputError, or warn, if -1 seems to be one of `size` labels."""
    found, coded = set(np.unique(labels).tolist()), range(UNKNOWN, size - 1)
    if size == 2 and found == {UNKNOWN, 1}:
        raise InvalidInputError(
            "y has the labels -1 and 1 alone, and -1 is an unknown label; give 0 and 1, or str"
        )
    if size > 1 and found == set(coded):
        warn(
            f"y has the labels {', '.join(map(str, sorted(found)[:10]))} alone, and -1 is an "
            f"unknown label, so that no node has the label {size - 1}; if -1 is a label, give 0 .. "
            f"{size - 1}, or str",
            UserWarning,
        )


def _first_table(x: Any) -> Any:
    """Return X, or the first of a list of tables, one for each example.

    Raises InvalidInputError if their columns differ, or if the rows 0, 1, ... of one, its nodes,
    are in another order.
    """
    if not isinstance(x, list | tuple) or not x:
        return x
    names = column_names(x[0])
    for i, table in enumerate(x):
        if (others := column_names(table)) != names:
            raise InvalidInputError(
                f"X[{i}] has the columns {others}, and X[0] {names}; give all in one order"
            )
        rows = (axis_labels(table) or (None,))[0]
        if rows is not None and set(rows) == set(range(len(rows))):
            raise InvalidInputError(
                f"X[{i}] has the rows {rows}; sort them, or give X[{i}].to_numpy()"
            )
    return x[0]


def _named_labels(y: npt.ArrayLike) -> npt.NDArray[Any] | None:
    """Return labels that are bools or str as an array; None for anything else."""
    check_positions("y", y)
    check_mask("y", y)
    try:
        array = np.asarray(y)
    except Exception:  # reported where integers are read
        return None
    if array.dtype.kind in "UTO" and all(isinstance(label, str) for label in array.flat):
        array = array.astype(str)
    return array if array.dtype.kind in "bU" else None
