"""Node fits as arrays in files: the checkpoint of a fit, and a part of the file of a model."""

import hashlib
import json
import math
import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fstgrad.core.checks import path_name
from fstgrad.core.errors import InvalidInputError
from fstgrad.grm.blocks import Term
from fstgrad.grm.families import Base, to_description
from fstgrad.grm.problem import Problem
from fstgrad.grm.regression import NodeFit
from fstgrad.io import Field, read_arrays, write_arrays

# Arguments of a model that do not change the result of a fit.
NO_EFFECT = {"checkpoint", "n_jobs", "verbose", "max_memory", "warm_start"}
FITS = {
    "nodes": Field("integer", ("nodes",), lower=0),
    "pointer": Field("integer", (None,), lower=0),
    "node_intercepts": Field("float", ("nodes", None)),
    "term": Field("integer", ("values",), lower=0),
    "key": Field("integer", ("values",), lower=0),
    "values": Field("float", ("values",)),
    "kkt": Field("float", ("nodes",)),
    "objective": Field("float", ("nodes",)),
    "steps": Field("integer", ("nodes",), lower=0),
    "scans": Field("integer", ("nodes",), lower=0),
    "converged": Field("integer", ("nodes",), lower=0, upper=1),
}


@dataclass
class Checkpoint:
    """A file with the finished nodes; it is replaced atomically, so that it is always readable.

    fingerprint : str, a digest of the data and the settings.
    features, terms, intercepts : the number of columns, the terms of the model, and the number of
        intercepts and slopes of a node.
    """

    path: pathlib.Path
    fingerprint: str
    features: int
    terms: Sequence[Term]
    intercepts: int

    def load(self) -> dict[int, NodeFit]:
        """Return the finished nodes; an empty dict if there is no file.

        Raises InvalidInputError if the file belongs to another fit or is damaged.
        """
        if not self.path.exists():
            return {}
        arrays = read_arrays(
            self.path,
            {"fingerprint": Field("text"), **FITS},
            what="a checkpoint of a fit; give another path",
        )
        if str(arrays["fingerprint"]) != self.fingerprint:
            raise InvalidInputError(
                f"checkpoint {self.path} belongs to other data or settings; delete it or give "
                "another path"
            )
        try:
            check_keys(arrays, self.features, self.terms, self.intercepts)
            return unpack(arrays)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"checkpoint {self.path}: {error}; give another path"
            ) from error

    def save(self, fits: dict[int, NodeFit]) -> None:
        """Replace the file by one with these nodes."""
        write_arrays(self.path, fingerprint=np.array(self.fingerprint), **pack(fits))


def pack(fits: dict[int, NodeFit]) -> dict[str, Any]:
    """Return the solutions as flat arrays, described by `FITS`, for a file."""
    nodes = sorted(fits)
    chosen = [fits[node] for node in nodes]
    counts = np.array([fit.values.size for fit in chosen], dtype=np.int64)
    none = np.zeros(0, dtype=np.int64)
    return {
        "nodes": np.array(nodes, dtype=np.int64),
        "pointer": np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        "node_intercepts": np.array([fit.intercepts for fit in chosen]),
        "term": np.concatenate([none, *(fit.term for fit in chosen)]),
        "key": np.concatenate([none, *(fit.key for fit in chosen)]),
        "values": np.concatenate([np.zeros(0), *(fit.values for fit in chosen)]),
        "kkt": np.array([fit.kkt for fit in chosen]),
        "objective": np.array([fit.objective for fit in chosen]),
        "steps": np.array([fit.steps for fit in chosen], dtype=np.int64),
        "scans": np.array([fit.scans for fit in chosen], dtype=np.int64),
        "converged": np.array([fit.converged for fit in chosen], dtype=np.int64),
    }


def check_keys(
    arrays: dict[str, Any], features: int, terms: Sequence[Term], intercepts: int
) -> None:
    """Check that arrays of `pack` fit a model with these columns, terms and intercepts.

    Raises
    ------
    InvalidInputError
        The arrays have a column, a term or a set that the model does not have, or are inconsistent.
    """
    nodes, pointer = arrays["nodes"], arrays["pointer"]
    if len(set(nodes.tolist())) < len(nodes) or (nodes >= features).any():
        raise InvalidInputError(f"its nodes are not columns 0 .. {features - 1}, each once")
    if (
        len(pointer) != len(nodes) + 1
        or (np.diff(pointer) < 0).any()
        or pointer[0] != 0
        or pointer[-1] != len(arrays["values"])
    ):
        raise InvalidInputError("its pointers do not cut its values into nodes")
    blocks = [math.comb(features, term.size - 1) for term in terms if term.size > 1]
    if arrays["term"].size and int(arrays["term"].max()) >= len(blocks):
        raise InvalidInputError(f"it has values of more than {len(blocks)} terms")
    limits = np.array([min(limit, 2**63 - 1) for limit in blocks], dtype=np.int64)
    if arrays["key"].size and (arrays["key"] >= limits[arrays["term"]]).any():
        raise InvalidInputError(f"its keys are of sets that {features} columns do not have")
    if arrays["node_intercepts"].shape[1] != intercepts:
        raise InvalidInputError("its intercepts are those of another model")


def unpack(arrays: dict[str, Any]) -> dict[int, NodeFit]:
    """Return the solutions from the arrays of `pack`."""
    pointer = arrays["pointer"]
    fits = {}
    for i, node in enumerate(arrays["nodes"].tolist()):
        part = slice(pointer[i], pointer[i + 1])
        fits[node] = NodeFit(
            intercepts=arrays["node_intercepts"][i],
            term=arrays["term"][part].astype(np.int64),
            key=arrays["key"][part].astype(np.int64),
            values=arrays["values"][part],
            kkt=float(arrays["kkt"][i]),
            objective=float(arrays["objective"][i]),
            steps=int(arrays["steps"][i]),
            scans=int(arrays["scans"][i]),
            converged=bool(arrays["converged"][i]),
        )
    return fits


def checkpoint_of(
    problem: Problem, path: str | os.PathLike[str] | None, stage: int, arguments: dict[str, Any]
) -> Checkpoint | None:
    """Return the checkpoint of a stage of a fit; None without a path.

    stage : the largest size of a set in the stage; stages before the last have a suffix in the name
    of their file.  arguments : those of the model by name.
    """
    if path is None:
        return None
    x = problem.x
    file = pathlib.Path(path_name(path, "checkpoint"))
    if stage < problem.k:
        file = file.with_name(f"{file.name}.stage{stage}")
    affecting = {name: value for name, value in arguments.items() if name not in NO_EFFECT}
    text = json.dumps([x.shape, stage, affecting], default=json_default, sort_keys=True)
    digest = hashlib.sha256(text.encode())
    covariates = problem.intercepts.covariates.columns
    for array in (x.data, x.indices, x.indptr, problem.weights, problem.offset, covariates):
        digest.update(np.ascontiguousarray(array).tobytes())
    width = problem.intercepts.width
    return Checkpoint(file, digest.hexdigest(), x.shape[1], problem.terms, width)


def json_default(value: object) -> object:
    """Return a numpy scalar, array, family, range or set as types of JSON.

    Raises TypeError for other values, as `json.dumps` expects of its `default`.
    """
    if isinstance(value, Base):
        return to_description(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, range):
        return list(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be saved")
