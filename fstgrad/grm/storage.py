"""Fitted models in .npz files: arrays and JSON texts, without executable code."""

import json
import os
from typing import Any, TypeVar

import numpy as np

from fstgrad.core.checks import BoolArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.grm import checkpoint, preparation
from fstgrad.grm.design import terms_of
from fstgrad.grm.families import BASES, Base, from_description, resolve, to_description
from fstgrad.grm.parameters import unflatten
from fstgrad.io import Field, json_object, load_arrays, read_arrays, shown, write_npz

FORMAT = "fstgrad.grm 4"
WHAT = "a model that GeneralizedRootModel.save wrote"
Model = TypeVar("Model", bound=Any)
_ARRAYS = {
    "format": Field("text"),
    "settings": Field("text"),
    "families": Field("text"),
    "names_of_frame": Field("integer", (), lower=0),
    "names": Field("text", ("columns",)),
    "intercepts": Field("float", ("columns", None)),
    "sizes": Field("integer", ("sets",)),
    "roots": Field("integer", ("sets",)),
    "members": Field("integer", ("sets", None), lower=-1),
    "coefficients": Field("float", ("sets",)),
    "slopes": Field("float", ("columns", None)),
    "candidates": Field("integer", (), lower=0),
    "joint_kkt": Field("float", ("columns",)),
    "iterations": Field("integer", (), lower=0),
    "uses_offset": Field("integer", (), lower=0, upper=1),
}
_SETTINGS: dict[str, type | tuple[type, ...]] = {
    "k": int, "base": dict, "alpha": (int, float), "interactions": str,
    "candidate_sets": (str, list, type(None)), "screening": str, "symmetrize": str,
    "tol": (int, float), "max_iter": int, "n_jobs": (int, type(None)), "warm_start": bool,
    "scale_columns": bool, "covariate_alpha": (int, float), "max_memory": (int, float),
    "verbose": bool,
}  # fmt: skip


def save(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted `GeneralizedRootModel` to an .npz file, without its checkpoint path."""
    settings = {**model.get_params(), "checkpoint": None}
    settings["base"] = to_description(resolve(model.base))
    families = [to_description(family) for family in model.families_]
    sizes, roots, members, values = model.parameters_.flat
    arrays = {
        "format": np.array(FORMAT),
        "settings": np.array(json.dumps(settings, default=checkpoint.json_default)),
        "names": np.asarray(model.names_, dtype=str),
        "names_of_frame": np.array(int(hasattr(model, "feature_names_in_"))),
        "families": np.array(json.dumps({"families": families})),
        "intercepts": model.parameters_.intercepts,
        "sizes": sizes,
        "roots": roots,
        "members": members,
        "coefficients": values,
        "slopes": model.parameters_.slopes,
        "candidates": np.array(model.n_candidates_),
        "joint_kkt": model.kkt_,
        "iterations": np.array(model.n_iter_),
        "uses_offset": np.array(int(model.uses_offset_)),
        **checkpoint.pack(dict(enumerate(model.node_fits_))),
    }
    if model.covariate_names_ is not None:
        arrays["covariate_names"] = np.asarray(model.covariate_names_, dtype=str)
    if model.kept_columns_ is not None:
        arrays["kept_columns"] = np.asarray(model.kept_columns_, dtype=bool)
    write_npz(path, arrays, compressed=True)


def load(kind: type[Model], path: str | os.PathLike[str]) -> Model:
    """Return a model of class `kind` that `save` wrote.

    Raises
    ------
    InvalidInputError
        The file is damaged, was not written by `save`, or has sets of columns that the model does
        not have.
    """
    arrays = read_arrays(path, _ARRAYS | checkpoint.FITS, what=WHAT)
    try:
        if str(arrays["format"]) != FORMAT:
            raise InvalidInputError(f"its format is {shown(str(arrays['format']))}")
        model: Model = kind(**_settings(str(arrays["settings"])))
        preparation.check_parameters(model)
        model.families_ = _families(str(arrays["families"]), len(arrays["names"]), model.base)
        _check(arrays, model)
        fits = checkpoint.unpack(arrays)
        if sorted(fits) != list(range(len(arrays["names"]))):
            raise InvalidInputError(f"it has {len(fits)} nodes for {len(arrays['names'])} columns")
    except InvalidInputError as error:
        raise InvalidInputError(f"{os.fspath(path)} is not {WHAT}: {error}") from error
    model.names_ = arrays["names"].tolist()
    model.covariate_names_ = _covariate_names(path, arrays["slopes"].shape[1])
    model.kept_columns_ = _kept_columns(path, len(model.names_))
    if arrays["names_of_frame"]:
        model.feature_names_in_ = np.array(model.names_, dtype=object)
    model.parameters_ = unflatten(
        model.families_, model.k, arrays["intercepts"], arrays["sizes"], arrays["roots"],
        arrays["members"], arrays["coefficients"], arrays["slopes"],
    )  # fmt: skip
    model.node_fits_ = [fits[node] for node in range(len(fits))]
    model.n_features_in_ = len(model.node_fits_)
    model.kkt_ = arrays["joint_kkt"]
    model.n_iter_ = int(arrays["iterations"])
    model.n_candidates_ = int(arrays["candidates"])
    model.uses_offset_ = bool(arrays["uses_offset"])
    return model


def _covariate_names(path: str | os.PathLike[str], count: int) -> list[str] | None:
    """Return the names of the covariates; None if the fit, or an older file, had none."""
    names = load_arrays(path, ["covariate_names"]).get("covariate_names")
    if names is None:
        return None
    if names.dtype.kind != "U" or names.shape != (count,):
        raise InvalidInputError(f"{os.fspath(path)} is not {WHAT}: covariate_names are not {count}")
    listed: list[str] = names.tolist()
    return listed


def _kept_columns(path: str | os.PathLike[str], count: int) -> BoolArray | None:
    """Return the columns of a table that the model has; None if it, or an older file, has all."""
    kept: BoolArray | None = load_arrays(path, ["kept_columns"]).get("kept_columns")
    if kept is not None and (kept.dtype != bool or kept.ndim != 1 or kept.sum() != count):
        raise InvalidInputError(f"{os.fspath(path)} is not {WHAT}: kept_columns are not {count}")
    return kept


def _settings(text: str) -> dict[str, Any]:
    """Return the arguments of the model, with checkpoint=None: no path from a file is opened."""
    settings = json_object(text, _SETTINGS)
    sets = settings["candidate_sets"]
    if isinstance(sets, list) and not all(
        isinstance(members, list) and all(isinstance(m, str | int) for m in members)
        for members in sets
    ):
        raise InvalidInputError("candidate_sets are not sets of columns")
    base = from_description(settings["base"])
    known = BASES.get(base.name) == base
    return {**settings, "checkpoint": None, "base": base.name if known else base}


def _families(text: str, columns: int, base: str | Base) -> tuple[Base, ...]:
    """Return the family of each column; raise InvalidInputError if they are not valid."""
    listed = json_object(text, {"families": list})["families"]
    families = tuple(from_description(description) for description in listed)
    if len(families) != columns:
        raise InvalidInputError(f"it has {len(families)} families for {columns} columns")
    if any(family.name != resolve(base).name for family in families):
        raise InvalidInputError("its families are not of one kind")
    return families


def _check(arrays: dict[str, Any], model: Any) -> None:
    """Raise InvalidInputError unless the arrays are consistent with each other and the model.

    In particular, each set must have `size` ascending columns and a root from `size` to k.
    """
    names, k = arrays["names"], model.k
    features, width = len(names), max(k, 2)
    if len(set(names.tolist())) < features:
        raise InvalidInputError("it has a name twice")
    if (
        arrays["intercepts"].shape[1] != k + model.families_[0].num_extra
        or arrays["members"].shape[1] != width
    ):
        raise InvalidInputError(f"its arrays are not those of k={k}")
    sizes, roots = arrays["sizes"], arrays["roots"]
    if ((sizes < 1) | (sizes > k) | (roots < sizes) | (roots > k)).any():
        raise InvalidInputError(f"sizes and roots are not 1 .. {k}")
    members = arrays["members"]
    there = np.arange(width) < sizes[:, None]
    if ((members < 0) | (members >= features))[there].any() or (members[~there] != -1).any():
        raise InvalidInputError(f"members has columns outside 0 .. {features - 1}")
    if (np.diff(members, axis=1) <= 0)[there[:, 1:]].any():
        raise InvalidInputError("members has a set that is not ascending")
    terms = terms_of(k, model.interactions)
    free = model.families_[0].free_coordinates(k)
    intercepts = len(set(free) | {term.root - 1 for term in terms if term.size == 1})
    checkpoint.check_keys(arrays, features, terms, intercepts + arrays["slopes"].shape[1])
