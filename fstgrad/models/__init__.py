"""The old name of `fstgrad.training`, kept for one release."""

import sys
import warnings

from fstgrad.training import sequence, templates

warnings.warn(
    "fstgrad.models was renamed: import from fstgrad.training",
    DeprecationWarning,
    stacklevel=2,
)
for _module in (sequence, templates):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module
