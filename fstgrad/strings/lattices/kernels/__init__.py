"""Compiled loops of the lattices.

A module is loaded on first access, for example `kernels.sums`: importing the package does not load
the compiler.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
