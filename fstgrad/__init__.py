"""fstgrad: exact gradients of structured losses over exponentially many structures.

The public names are listed in `__init__.pyi` and loaded when they are first used, so that
`import fstgrad` is quick and needs no optional package.
"""

import importlib.util

import lazy_loader

__getattr__, _names, __all__ = lazy_loader.attach_stub(__name__, __file__)
_OPTIONAL = {"jax", "plot", "torch"}  # subpackages; `from fstgrad import *` leaves them out
__all__ = [name for name in __all__ if name not in _OPTIONAL]


def __dir__() -> list[str]:
    """Return the public names; of subpackages those whose framework is installed."""
    packages = {"jax": "jax", "plot": "matplotlib", "torch": "torch"}
    found = {name for name, package in packages.items() if importlib.util.find_spec(package)}
    return sorted(set(_names()) - _OPTIONAL | found)
