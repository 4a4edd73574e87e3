"""Fully connected random fields on JAX arrays."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fstgrad.core.checks import positive_integer
from fstgrad.core.errors import InvalidInputError
from fstgrad.jax import arguments
from fstgrad.jax.operators import batched_callback, no_tangent, shape_of
from fstgrad.mrf.dense import Kernel, PairSums, check_labels, checked_kernels
from fstgrad.objectives.base import Array
from fstgrad.objectives.mrf import check_dense_shapes


def mrf_dense_marginals(
    node_scores: Any,
    image: Any,
    kernels: Sequence[Kernel],
    weights: Any = None,
    *,
    compatibility: Any = None,
    iterations: int = 5,
) -> jax.Array:
    """Return the marginals of pixels after mean-field updates, shaped like `node_scores`.

    Parameters
    ----------
    node_scores : (C, H, W) or (B, C, H, W) floating point
        Log-weights in nats.
    image : (H, W) or (B, H, W)
        Gray values, for kernels with a contrast; they get no gradient.
    kernels : sequence of K Kernel
        The distances and contrasts of the kernels.
    weights : (K,), optional
        Factors by which the kernels' weights are multiplied; default 1.
    compatibility : (C, C), optional
        Score of a pair of pixels with the labels c and d; default 1 if c = d, otherwise 0.
    iterations : int
        Number of updates, each of all pixels at once.  The derivative of these updates is exact,
        whether they have converged or not.

    Examples
    --------
    >>> import jax.numpy as jnp, fstgrad.jax as fgj
    >>> from fstgrad.mrf.dense import Kernel
    >>> node = jnp.zeros((2, 4, 4)).at[0, :2].set(2.0)
    >>> p = fgj.mrf_dense_marginals(node, jnp.zeros((4, 4)), [Kernel(0.5, 1.0)])
    >>> p.shape, bool((p[0, 0] > 0.85).all())
    ((2, 4, 4), True)
    """
    iterations = positive_integer("iterations", iterations)
    kernels = checked_kernels(kernels)
    nodes = arguments.table("node_scores", node_scores, 3, 4, axes="(C, H, W) or (B, C, H, W)")
    gray = arguments.table("image", image, 2, 3, axes="(H, W) or (B, H, W)")
    if weights is not None:
        weights = arguments.table("weights", weights, 1, axes="(K,)")
    if compatibility is not None:
        compatibility = arguments.table("compatibility", compatibility, 2, axes="(C, C)")
    check_dense_shapes(nodes, gray, len(kernels), weights, compatibility)
    single = nodes.ndim == 3
    nodes, gray = nodes[None] if single else nodes, gray[None] if gray.ndim == 2 else gray
    if not isinstance(nodes, jax.core.Tracer):
        check_labels(np.asarray(nodes), axis=1)
    weights = jnp.ones(len(kernels)) if weights is None else weights
    compatibility = jnp.eye(nodes.shape[1]) if compatibility is None else compatibility
    weights, compatibility = weights.astype(nodes.dtype), compatibility.astype(nodes.dtype)
    gray, scores = jax.lax.stop_gradient(gray), jnp.moveaxis(nodes, 1, -1)
    q = jax.nn.softmax(scores, axis=-1)
    for _ in range(iterations):
        sums = [weights[k] * _sums(kernel, True, q, gray) for k, kernel in enumerate(kernels)]
        q = jax.nn.softmax(scores + sum(sums, jnp.zeros_like(q)) @ compatibility.T, axis=-1)
    marginals = jnp.moveaxis(q, -1, 1)
    return marginals[0] if single else marginals


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _sums(kernel: Kernel, are_shares: bool, q: jax.Array, images: jax.Array) -> jax.Array:
    """Return the weighted sums over all other pixels (B, H, W, C), a symmetric linear map of q."""

    def host(tables: Array, pictures: Array) -> tuple[Array]:
        if are_shares and not np.isfinite(tables).all():
            raise InvalidInputError("node_scores hold NaN or +inf; give log-weights")
        wide = tables.astype(np.float64)
        rows = zip(wide, pictures.astype(np.float64), strict=True)
        return (np.array([_map(kernel, g.shape, g.tobytes())(table) for table, g in rows]),)

    sums: jax.Array = batched_callback(host, (shape_of(q.shape, q.dtype),), (q, images))[0]
    return sums


def _forward(kernel: Kernel, are_shares: bool, q: Any, images: Any) -> tuple[jax.Array, Any]:
    return _sums(kernel, are_shares, q, images), images


def _backward(kernel: Kernel, _: bool, images: Any, upstream: jax.Array) -> tuple[Any, Any]:
    return _sums(kernel, False, upstream, images), no_tangent(images)


_sums.defvjp(_forward, _backward)


@lru_cache(maxsize=64)
def _map(kernel: Kernel, shape: tuple[int, ...], gray: bytes) -> PairSums:
    """Return the sums of one image, cached for all updates and their derivatives."""
    return PairSums(np.frombuffer(gray).reshape(shape), kernel)
