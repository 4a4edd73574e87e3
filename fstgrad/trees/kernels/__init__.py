"""Compiled loops of the tree families.

A module is loaded when it is first named, as in `kernels.matrix_tree`, so importing the families
does not load the compiler.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
