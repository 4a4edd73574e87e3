"""Oracles: slow and obvious code, mostly enumeration, that the tests compare fstgrad with."""
