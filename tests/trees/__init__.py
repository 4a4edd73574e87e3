"""Spanning and projective trees."""
