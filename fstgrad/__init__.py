"""fstgrad: exact gradients of structured losses over exponentially many structures.

The public names are listed in `__init__.pyi` and loaded when they are first used, so that
`import fstgrad` is quick and needs no optional package.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
