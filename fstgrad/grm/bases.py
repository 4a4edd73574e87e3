"""The old name of `fstgrad.grm.families`, kept for one more release."""

import warnings

from fstgrad.grm.families import *  # noqa: F403

warnings.warn(
    "fstgrad.grm.bases was renamed: import from fstgrad.grm.families",
    DeprecationWarning,
    stacklevel=2,
)
