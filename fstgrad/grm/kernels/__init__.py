"""Compiled loops of the root models, loaded when first named, as in `kernels.counts`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
