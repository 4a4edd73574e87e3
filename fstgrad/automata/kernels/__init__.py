"""Compiled loops over arrays.

A module is loaded when it is first named, as in `kernels.tropical`, so that `import fstgrad` does
not load the compiler.  `arcs` holds the named tuples that they read.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
