"""fstgrad: exact gradients of structured losses over exponentially many structures.

`__init__.pyi` lists the public names.  Each is loaded on first use, so `import fstgrad` is fast and
needs no optional package.
"""

import importlib.util

import lazy_loader

__getattr__, _names, __all__ = lazy_loader.attach_stub(__name__, __file__)
_OPTIONAL = {"jax", "plot", "torch"}  # subpackages that `from fstgrad import *` leaves out
__all__ = [name for name in __all__ if name not in _OPTIONAL]


def __dir__() -> list[str]:
    """Return the public names; an optional subpackage is included if its framework is installed."""
    packages = {"jax": "jax", "plot": "matplotlib", "torch": "torch"}
    found = {name for name, package in packages.items() if importlib.util.find_spec(package)}
    return sorted(set(_names()) - _OPTIONAL | found)
