"""Kinds of input (rows) against the arguments of all public functions and commands (columns)."""
