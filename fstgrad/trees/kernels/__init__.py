"""Compiled loops of the spanning-tree family."""
