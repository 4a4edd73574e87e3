"""The version of fstgrad; this module imports nothing."""

__version__ = "0.2.0"
