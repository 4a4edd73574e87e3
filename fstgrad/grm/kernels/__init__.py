"""Compiled loops of the root models; `kernels.NAME` loads a module at its first use.

Unless a docstring says otherwise, float arrays are float64, integer arrays int64, all C-ordered.
Letters as in `fstgrad.grm.base`: eta natural parameters, t statistics, B log base measure, A
log-partition function, the last three in nats.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
