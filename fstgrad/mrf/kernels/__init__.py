"""Compiled loops of the Markov random fields; `kernels.NAME` loads a module at its first use.

Unless a docstring says otherwise, float arrays are float64, integer arrays int64, all C-ordered;
`maximum` and `flip` are 0 or 1; scores and log-normalizers are in nats; `low` and `high` bound the
range low .. high - 1 that one call (one thread) works on.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
