"""The old name of `fstgrad.training`, kept for one release."""

import importlib
import sys
import warnings

warnings.warn(
    "fstgrad.models was renamed: import from fstgrad.training",
    DeprecationWarning,
    stacklevel=2,
)
_SAME = ("curves", "kernels", "lengths", "measures", "sequence", "shards", "storage")
for _old, _new in [*((name, name) for name in _SAME), ("training", "trainer")]:
    globals()[_old] = importlib.import_module(f"fstgrad.training.{_new}")
    sys.modules[f"{__name__}.{_old}"] = globals()[_old]
