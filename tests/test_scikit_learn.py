"""Estimators in scikit-learn: its own checks, and searches and validations with real inputs.

The checks give tables (N, F).  They run on every estimator; those that need a table of an estimator
with other inputs are named below, and what they check is tested with inputs that it has.
"""

import copy
import pickle
import warnings

import numpy as np
import pytest

import fstgrad as fg

pytest.importorskip("sklearn")
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

from fstgrad.mrf.estimator import MRFClassifier

GRID = fg.PairwiseMRF.grid(1, 3, np.zeros((3, 2)), np.zeros((2, 2)))


class WithTables:
    """Says that inputs are tables, so that scikit-learn does not leave its checks out."""

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags


class Fields(WithTables, MRFClassifier):
    """Inputs are features (N, I, F) of the nodes of a graph."""

    def __repr__(self):
        return "Fields()"


class Sequences(WithTables, fg.SequenceModel):
    """Inputs are sequences of symbols."""


GIVES_A_TABLE = """
array_api_input complex_data dict_unchanged dont_overwrite_parameters dtype_object
estimator_sparse_array estimator_sparse_matrix estimator_sparse_tag estimators_dtypes
estimators_empty_data_messages estimators_fit_returns_self estimators_nan_inf
estimators_overwrite_params estimators_pickle f_contiguous_array_estimator fit2d_1feature
fit2d_1sample fit2d_predict1d fit_check_is_fitted fit_idempotent fit_score_takes_y
methods_sample_order_invariance methods_subset_invariance n_features_in
n_features_in_after_fitting pipeline_consistency positive_only_tag_during_fit
readonly_memmap_input requires_y_none
"""
OF_CLASSIFIERS = """
classifier_data_not_an_array classifier_multioutput classifiers_classes classifiers_one_label
classifiers_regression_target classifiers_train non_transformer_estimators_n_iter supervised_y_2d
"""


def not_applicable(estimator):
    """Return {name of a check: why it does not apply to the estimator}."""
    if isinstance(estimator, fg.GeneralizedRootModel):
        names = ["sample_weight_equivalence_on_dense_data"]
        names += ["sample_weight_equivalence_on_sparse_data"]
        why = "it gives fractions to a model of counts" if estimator.base == "poisson" else None
        return {f"check_{name}": why for name in names if why}
    names = [*GIVES_A_TABLE.split(), *(OF_CLASSIFIERS.split() if is_classifier(estimator) else [])]
    why = {f"check_{name}": f"it gives a table; {type(estimator).__doc__}" for name in names}
    return why | {"check_estimators_unfitted": "scikit-learn's error needs scikit-learn"}


with warnings.catch_warnings():  # the estimators do without a base class of scikit-learn
    warnings.simplefilter("ignore", UserWarning)
    EVERY_CHECK = parametrize_with_checks(
        [
            fg.GeneralizedRootModel(),
            fg.GeneralizedRootModel(k=1, base="gaussian"),
            fg.GeneralizedRootModel(k=2, base="gaussian"),
            fg.GeneralizedRootModel(k=1, base="exponential"),
            Fields(GRID),
            Sequences(),
        ],
        expected_failed_checks=not_applicable,
    )


@EVERY_CHECK
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_checks_of_scikit_learn(estimator, check):
    try:
        check(estimator)
    except Exception:
        why = not_applicable(estimator).get(getattr(check, "func", check).__name__)
        if why is None:
            raise
        pytest.skip(why)  # at once: the report of a traceback parses all of scikit-learn's checks


def fields():
    X = np.random.default_rng(0).normal(size=(9, 3, 2))
    return MRFClassifier(GRID, max_iter=20), X, X[..., 0] + 0.1 > 0


def sequences():
    X = ["abc", "cab", "bca", "abca", "bb", "cc", "ba", "acb", "aab"]
    return fg.SequenceModel(features="aligned", epochs=3), X, [x.upper() for x in X]


REAL = pytest.mark.parametrize("make", [fields, sequences])


@REAL
def test_what_the_checks_of_tables_check(make):
    model, X, y = make()
    with pytest.raises(NotFittedError):
        check_is_fitted(model)
    given = copy.deepcopy((X, y))
    assert model.fit(X, y) is model
    check_is_fitted(model)
    assert repr(given) == repr((X, y))
    before = {name: repr(value) for name, value in vars(model).items()}
    predicted = [list(row) for row in model.predict(X)]
    assert before == {name: repr(value) for name, value in vars(model).items()}
    for other in (clone(model).fit(X, y), pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert [list(row) for row in other.predict(X)] == predicted
    assert [list(row) for row in model.predict(X[::-1])] == predicted[::-1]
    assert [list(model.predict(X[i : i + 1])[0]) for i in range(len(X))] == predicted


@REAL
def test_validation_and_search(make):
    model, X, y = make()
    scores = cross_val_score(model, X, y, cv=3)
    third = len(X) // 3
    by_hand = clone(model).fit(X[third:], y[third:]).score(X[:third], y[:third])
    assert scores[0] == pytest.approx(by_hand, abs=1e-12)
    search = GridSearchCV(model, {"l2": [1e-3, 1e3]}, cv=3).fit(X, y)
    assert search.best_params_ == {"l2": 1e-3}
    assert search.best_score_ == pytest.approx(
        cross_val_score(model.set_params(l2=1e-3), X, y, cv=3).mean(), abs=1e-12
    )


@pytest.mark.parametrize("kind", [bool, int, str, object, list])
def test_labels_of_fields_have_names(kind):
    """The model does not depend on what the labels are called."""
    model, X, y = fields()
    numbers = clone(model).fit(X, y.astype(int))
    names = {bool: [False, True], int: [0, 1]}.get(kind, ["sky", "water"])
    labels = np.array(names)[y.astype(int)]
    labels = labels.tolist() if kind is list else labels.astype(kind)
    model.fit(X, labels)
    assert model.classes_.tolist() == names
    np.testing.assert_array_equal(model.weights_, numbers.weights_)
    expected = np.array(names)[numbers.predict(X)]
    np.testing.assert_array_equal(model.predict(X), expected)
    assert model.score(X, labels) == pytest.approx((expected == np.array(labels)).mean())
    assert cross_val_score(model, X, labels, cv=3).shape == (3,)


def test_labels_that_do_not_fit():
    model, X, y = fields()
    names = np.where(y, "sky", "water")
    named = clone(model).fit(X, names)
    for call, said in (
        (lambda: model.fit(X, np.full((9, 3), "sky")), "1 different labels, 'sky', and the graph"),
        (lambda: model.fit(X, y * 1.5), "float64; give integers"),
        (lambda: model.fit(X, np.where(y, names.astype(object), None)), "object; give integers"),
        (lambda: named.score(X, np.where(y, "sky", "sea")), "y has 'sea'; .* 'sky', 'water'"),
        (lambda: named.score(X, y), "dtype bool; the labels of the fit are 'sky', 'water'"),
        (lambda: model.fit(X, y).score(X, names), "the labels of the fit are False, True"),
    ):
        with pytest.raises(fg.InvalidInputError, match=said):
            call()
