"""Compiled loops of the features, alignments and optimizer steps.

A module is loaded when it is first named, as in `kernels.templates`: importing the package does not
load the compiler.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
