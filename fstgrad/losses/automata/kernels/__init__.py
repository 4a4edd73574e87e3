"""Compiled loops over arrays.

A module is loaded at its first use, as in `kernels.tropical`, so that `import fstgrad` does not
load the compiler.  `arguments` defines the named tuples that the kernels read.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
