"""Enumeration oracles: slow, obvious, and importing nothing of fstgrad but data types."""
