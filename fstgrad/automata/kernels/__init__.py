"""Compiled loops over arrays, each beside a readable numpy twin that the tests compare it with.

Modules here are imported inside the functions that use them, never at the top of a module, so that
`import fstgrad` does not load the compiler.
"""
