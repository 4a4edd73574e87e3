"""Exact inference: one forward and one backward pass over a forest, or elimination."""
