"""A layer for dense random fields: mean field, differentiable in all parameters.

The iterations of Krähenbühl and Koltun (2011) are unrolled, as by Zheng et al. (2015), "Conditional
random fields as recurrent neural networks".  The sums over all pairs of pixels are the filters of
`fstgrad.mrf.dense`, on a device those of `device.dense`.  These are linear and symmetric, so the
backward pass applies the same filter.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fstgrad.core.checks import positive_integer
from fstgrad.mrf.dense import Kernel, PairSums, check_labels, checked_kernels
from fstgrad.objectives.mrf import check_dense_shapes
from fstgrad.torch import arguments
from fstgrad.torch.arrays import computes_on_device, to_float64, to_numpy, upcast, validated
from fstgrad.torch.device.dense import Filter
from fstgrad.torch.transforms import knows_values, no_vmap, refuse_transforms, uncompiled


@uncompiled
@validated
def mrf_dense_marginals(
    node_scores: torch.Tensor,
    image: torch.Tensor,
    kernels: Sequence[Kernel],
    weights: torch.Tensor | None = None,
    *,
    compatibility: torch.Tensor | None = None,
    iterations: int = 5,
) -> torch.Tensor:
    """Return the marginals of pixels after mean-field updates, shaped like `node_scores`.

    Parameters
    ----------
    node_scores : (C, H, W) or (B, C, H, W) floating point
        Log-weights in nats.
    image : (H, W) or (B, H, W)
        Gray values, for kernels with a contrast; they get no gradient.  The range of those on a
        device is read, which waits for it; give an image on the CPU to avoid this.
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
    >>> import torch, fstgrad.torch
    >>> from fstgrad.mrf.dense import Kernel
    >>> node = torch.zeros(2, 4, 4, dtype=torch.float64)
    >>> node[0, :2] = 2.0
    >>> p = fstgrad.torch.mrf_dense_marginals(node, torch.zeros(4, 4), [Kernel(0.5, 1.0)])
    >>> p.shape, bool((p[0, 0] > 0.85).all())
    (torch.Size([2, 4, 4]), True)
    """
    iterations = positive_integer("iterations", iterations)
    arguments.floating("node_scores", node_scores)
    arguments.real("image", image)
    kernels = checked_kernels(kernels)
    for name, given in (("weights", weights), ("compatibility", compatibility)):
        if given is not None:
            arguments.real(name, given)
    check_dense_shapes(node_scores, image, len(kernels), weights, compatibility)
    single = node_scores.ndim == 3
    nodes = (node_scores[None] if single else node_scores).double()
    images = image[None] if image.ndim == 2 else image
    if weights is None:
        weights = nodes.new_ones(len(kernels))
    if compatibility is None:
        compatibility = torch.eye(nodes.shape[1], dtype=nodes.dtype, device=nodes.device)
    refuse_transforms([nodes, weights, compatibility])
    no_vmap([nodes, images, weights, compatibility])
    arguments.log_weights("node_scores", nodes)
    if knows_values(nodes) and not computes_on_device(nodes):
        check_labels(to_numpy(nodes), axis=1)
    marginals = []
    weights, compatibility = weights.double(), compatibility.double()
    for scores, values in zip(nodes.movedim(1, -1), images.detach(), strict=True):
        sums = [_sums_of(values, kernel, scores) for kernel in kernels]
        q = torch.softmax(scores, dim=-1)
        for _ in range(iterations):
            messages = torch.zeros_like(scores)
            for weight, pair_sums in zip(weights, sums, strict=True):
                messages = messages + weight * pair_sums(q)
            q = torch.softmax(scores + messages @ compatibility.T, dim=-1)
        marginals.append(q.movedim(-1, 0))
    return (marginals[0] if single else torch.stack(marginals)).to(upcast(node_scores).dtype)


def _sums_of(
    image: torch.Tensor, kernel: Kernel, scores: torch.Tensor
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the sums over all other pixels, a function of q (H, W, C)."""
    if computes_on_device(scores):
        return Filter(image, kernel, scores.device)
    own = PairSums(to_float64(image), kernel)
    return lambda q: _Sums.apply(q, own)  # type: ignore[no-untyped-call]


class _Sums(torch.autograd.Function):
    """The weighted sums over all other pixels: a symmetric linear map."""

    @staticmethod
    def forward(ctx: Any, q: torch.Tensor, pair_sums: PairSums) -> torch.Tensor:
        ctx.own = pair_sums
        return torch.from_numpy(pair_sums(q.detach().numpy()))

    @staticmethod
    def backward(ctx: Any, *upstream: torch.Tensor) -> tuple[torch.Tensor, None]:
        gradient: torch.Tensor = _Sums.apply(upstream[0], ctx.own)  # type: ignore[no-untyped-call]
        return gradient, None
