"""What all families build on: errors, checks, symbols, the contract, compiled kernels.

Reading order
-------------
- `errors`, `short_repr` : the errors; short representations.
- `axis_labels`, `sequences`, `checks` : labels of tables; batches of sequences; checks of
  arguments.
- `infeasible` : the infeasible items of a batch.
- `threads`, `numba_internals`, `uninitialized` : pools of threads; what has no public interface in
  numba; new arrays, which a debug mode fills.
- `kernel_signatures`, `kernel_cache`, `precompile` : types as text; the files of compiled kernels;
  the kernels that a wheel brings.
- `compiler`, `vectors` : the decorators of kernels; exponentials and logarithms of vectors.
- `alphabet`, `tag_schemes`, `distribution`, `estimates`, `bootstrap` : symbols; tags that write
  spans; the contract of all families; estimates from samples; intervals of data drawn again.
"""
