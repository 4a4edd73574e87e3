"""Wheels bring the kernels of first steps compiled; everything else is in setup.cfg.

FSTGRAD_KERNEL_LEVELS names the levels of processors, separated by spaces ("x86-64-v2 x86-64-v3");
the default is the best level of this machine, and "none" builds a wheel of Python files alone.
"""

import os
import subprocess
import sys

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

LEVELS = os.environ.get("FSTGRAD_KERNEL_LEVELS", "host").replace("none", "").split()
BUILD = "import pathlib, sys; from fstgrad.core.precompile import build; "
BUILD += "build(pathlib.Path('fstgrad').absolute(), sys.argv[1:])"


class CompiledKernels(build_py):
    """Copy the modules, then compile kernels into the copy."""

    def run(self) -> None:
        """Build the modules and the kernels."""
        super().run()
        if LEVELS and not self.editable_mode:
            subprocess.run([sys.executable, "-c", BUILD, *LEVELS], cwd=self.build_lib, check=True)


class PlatformWheel(Distribution):
    """A wheel for one version of Python and one platform, if it has machine code."""

    def has_ext_modules(self) -> bool:
        """Return whether the wheel has machine code."""
        return bool(LEVELS) and "editable_wheel" not in sys.argv


setup(cmdclass={"build_py": CompiledKernels}, distclass=PlatformWheel)
