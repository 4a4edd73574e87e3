"""Spanning trees with a single root arc in JAX: our implementation of published algorithms.

SynJax is in no package registry, so it cannot be timed.  These jitted functions implement the
methods that it uses:

- log Z and marginals by the determinant and the inverse of Koo et al. (EMNLP 2007), after
  subtracting the maximum of each column and of the root's row from the scores;
- draws without replacement after Stanojevic, "Unbiased and Efficient Sampling of Dependency Trees"
  (EMNLP 2022): heads are drawn one dependent after the other (Colbourn, Day and Nel, 1996), each
  head updates the inverse Laplacian by the Sherman-Morrison formula, O(n^2), and a stochastic beam
  (Kool, van Hoof and Welling, ICML 2019) keeps the k largest perturbed log-probabilities.
"""

import functools

import jax
import jax.numpy as jnp

jax.config.update("jax_enable_x64", True)

# A probability of 0 may come out this large because of rounding.
ROUNDING = 1e-12


def laplacian(weights):
    """Return the Laplacian L (n, n) of weights (n+1, n+1); its first row has the root's weights."""
    inner = weights[1:, 1:] * (1 - jnp.eye(len(weights) - 1))
    matrix = jnp.diag(inner.sum(axis=0)) - inner
    return matrix.at[0].set(weights[0, 1:])


def shifted(scores):
    """Return scores minus the maxima of columns and root, and the resulting decrease of log Z."""
    size = len(scores)
    real = ~jnp.eye(size, dtype=bool) & (jnp.arange(size) > 0)
    scores = jnp.where(real, scores, -jnp.inf)
    columns = scores[:, 1:].max(axis=0)
    scores = scores.at[:, 1:].add(-columns)
    root = scores[0].max()
    return scores.at[0].add(-root), columns.sum() + root


def marginals_into(inverse, weights, j):
    """Return the marginals (n+1,) of the arcs into dependent j (from 0), given the inverse of L."""
    own = jnp.where(j > 0, inverse[j, j], 0.0)
    others = jnp.where(jnp.arange(len(inverse)) > 0, inverse[j], 0.0)
    slopes = jnp.concatenate([inverse[j, :1], own - others])
    return weights[:, j + 1] * slopes * (jnp.arange(len(weights)) != j + 1)


@jax.jit
@jax.vmap
def first_order(scores):
    """Return log Z and the marginals (n+1, n+1) of each table of a batch."""
    scores, taken = shifted(scores)
    weights = jnp.exp(scores)
    matrix = laplacian(weights)
    inverse = jnp.linalg.inv(matrix)
    n = len(matrix)
    columns = jax.vmap(marginals_into, (None, None, 0))(inverse, weights, jnp.arange(n))
    marginals = jnp.concatenate([jnp.zeros((1, n + 1)), columns]).T
    return jnp.linalg.slogdet(matrix)[1] + taken, marginals


def fix_head(inverse, matrix, j, head):
    """Return the inverse and L after fixing the head of dependent j (from 0), in O(n^2)."""
    n = len(matrix)
    place = jnp.arange(n)
    column = jnp.where(head > 0, (place == j) * 1.0 - (place == head - 1), 0.0)
    column = column.at[0].set(jnp.where(head == 0, 1.0, 0.0))
    change = inverse @ (column - matrix[:, j])
    inverse = inverse - jnp.outer(change, inverse[j]) / (1.0 + change[j])
    return inverse, matrix.at[:, j].set(column)


def perturbed(key, logs, largest):
    """Return Gumbel variables (k, m) with locations `logs` and maxima `largest` (k, 1)."""
    draws = logs + jax.random.gumbel(key, logs.shape)
    top = draws.max(axis=1, keepdims=True)
    gap = largest - draws + jnp.log1p(-jnp.exp(draws - top))
    return largest - jnp.maximum(gap, 0.0) - jnp.log1p(jnp.exp(-jnp.abs(gap)))


@functools.partial(jax.jit, static_argnums=2)
def sample_without_replacement(key, scores, k):
    """Return heads (k, n) in the order of draws, and log-probabilities (k,); -inf marks no tree."""
    scores, _ = shifted(scores)
    weights = jnp.exp(scores)
    matrix = laplacian(weights)
    n = len(matrix)
    copies = (jnp.linalg.inv(matrix), matrix, jnp.zeros(n, dtype=jnp.int32))
    states = tuple(jnp.broadcast_to(x, (k, *x.shape)) for x in copies)
    logs = jnp.full(k, -jnp.inf).at[0].set(0.0)

    def extend(beam, step):
        (inverses, matrices, heads), logs, noise = beam
        j, own_key = step
        chances = jax.vmap(marginals_into, (0, None, None))(inverses, weights, j)
        possible = chances > ROUNDING  # False for NaN too
        totals = logs[:, None] + jnp.log(jnp.where(possible, jnp.minimum(chances, 1.0), 0.0))
        drawn = perturbed(own_key, totals, noise[:, None])
        drawn = jnp.where(totals > -jnp.inf, drawn, -jnp.inf)
        best, where = jax.lax.top_k(drawn.reshape(-1), k)
        of, head = where // (n + 1), where % (n + 1)
        inverses, matrices = jax.vmap(fix_head, (0, 0, None, 0))(
            inverses[of], matrices[of], j, head
        )
        heads = heads[of].at[:, j].set(head.astype(jnp.int32))
        return ((inverses, matrices, heads), totals.reshape(-1)[where], best), None

    steps = (jnp.arange(n), jax.random.split(key, n))
    ((_, _, heads), logs, _), _ = jax.lax.scan(extend, (states, logs, logs), steps)
    return heads, logs
