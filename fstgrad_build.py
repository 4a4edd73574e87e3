"""The build backend: that of setuptools, with what compiles kernels when a wheel is built."""

import os

from setuptools import build_meta
from setuptools.build_meta import *  # noqa: F403

_COMPILER = ["lazy_loader", "numba", "numpy", "scipy"]


def get_requires_for_build_wheel(config_settings: dict[str, str] | None = None) -> list[str]:
    """Return the requirements of a wheel; an editable installation does without the compiler."""
    own = build_meta.get_requires_for_build_wheel(config_settings)
    return own if os.environ.get("FSTGRAD_KERNEL_LEVELS") == "none" else [*own, *_COMPILER]
