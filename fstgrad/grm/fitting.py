"""Runs all node regressions in threads, with a checkpoint, and merges them into one model.

The kernels release the interpreter lock, so that threads can share the design without copies.
"""

import hashlib
import math
import pathlib
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fstgrad.core.checks import FloatArray, IntArray
from fstgrad.core.errors import InvalidInputError
from fstgrad.core.threads import worker_threads
from fstgrad.grm.active_set import Intercepts
from fstgrad.grm.blocks import Term
from fstgrad.grm.design import Design
from fstgrad.grm.parameters import Interactions, Parameters
from fstgrad.grm.regression import NodeFit
from fstgrad.io import Field, read_arrays, write_arrays

CHECKPOINT_SECONDS = 20.0
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
Progress = Callable[[int, NodeFit], None]


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


def fit_all(
    solve: Callable[[int], NodeFit],
    nodes: int,
    *,
    threads: int,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> list[NodeFit]:
    """Return the solutions of all nodes, computed by `solve` in threads.

    Nodes in the checkpoint are not solved again.  The checkpoint is saved about every 20 seconds
    and at the end, also after an error or an interruption.  progress(node, fit) is called after
    each node.
    """
    fits = checkpoint.load() if checkpoint else {}
    todo = [node for node in range(nodes) if node not in fits]
    saved = time.monotonic()
    try:
        with worker_threads(threads) as pool:
            running = {pool.submit(solve, node): node for node in todo}
            for future in as_completed(running):
                node = running[future]
                fits[node] = future.result()
                if progress:
                    progress(node, fits[node])
                if checkpoint and time.monotonic() - saved > CHECKPOINT_SECONDS:
                    checkpoint.save(fits)
                    saved = time.monotonic()
    finally:
        if checkpoint:
            checkpoint.save(fits)
    return [fits[node] for node in range(nodes)]


def fingerprint(arrays: Iterable[npt.NDArray[Any]], settings: str) -> str:
    """Return a SHA-256 digest (hexadecimal) of the data and the settings of a fit."""
    digest = hashlib.sha256(settings.encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


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


def symmetrize(
    fits: Sequence[NodeFit], design: Design, blank: Parameters, heads: Intercepts, rule: str
) -> Parameters:
    """Return one model from p node fits.

    A set S has |S| estimates, one from each of its nodes; the estimate is 0 if the node did not
    select S.  rule : "average", their mean; "min", the estimate with the smallest absolute value (0
    unless all nodes select S); "max", the one with the largest.  blank : the families and k.
    """
    intercepts, f = np.zeros(blank.intercepts.shape), heads.coordinates.size
    found = np.array([fit.intercepts for fit in fits])
    intercepts[:, heads.coordinates] = found[:, :f]
    interactions = []
    for number, block in enumerate(design.blocks):
        sets, values = [], []
        for node, fit in enumerate(fits):
            mine = fit.term == number
            members = design.members(block, fit.key[mine])
            with_node = np.concatenate([np.full((len(members), 1), node), members], axis=1)
            sets.append(np.sort(with_node, axis=1))
            values.append(fit.values[mine])
        interactions.append(
            _combine(block.term, np.concatenate(sets), np.concatenate(values), rule)
        )
    return replace(
        blank, intercepts=intercepts, interactions=tuple(interactions), slopes=found[:, f:]
    )


def _combine(term: Term, sets: IntArray, values: FloatArray, rule: str) -> Interactions:
    """Return the merged nonzero estimates; rows of sets (m, size) may repeat."""
    distinct, inverse, counts = np.unique(sets, axis=0, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    if rule == "average":
        merged = np.bincount(inverse, values, minlength=len(distinct)) / term.size
    else:
        order = np.argsort(np.abs(values), kind="stable")
        if rule == "min":
            order = order[::-1]
        merged = np.zeros(len(distinct))
        merged[inverse[order]] = values[order]  # for repeated indices, the last value remains
        if rule == "min":
            merged[counts < term.size] = 0.0
    kept = merged != 0
    return Interactions(term, distinct[kept], merged[kept])


def cliques(sets: IntArray, features: int) -> IntArray:
    """Return the ascending sets (c, size + 1), all of whose subsets of `size` are in `sets`.

    sets : (m, size).  For pairs, these are the triangles of their graph (Section 6 of the paper).
    """
    size = sets.shape[1]
    known = {tuple(row) for row in sets.tolist()}
    larger: dict[tuple[int, ...], set[int]] = {}
    for row in known:
        larger.setdefault(row[:-1], set()).add(row[-1])
    found = []
    for start, ends in larger.items():
        ordered = sorted(ends)
        for i, a in enumerate(ordered):
            for b in ordered[i + 1 :]:
                whole = (*start, a, b)
                if all(whole[:q] + whole[q + 1 :] in known for q in range(size + 1)):
                    found.append(whole)
    return np.array(sorted(found), dtype=np.int64).reshape(-1, size + 1)
