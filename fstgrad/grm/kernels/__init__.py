"""Compiled loops of the generalized root models; imported inside functions only."""
