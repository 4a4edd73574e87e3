"""Builders of transducers: plain functions to a pynini.Fst."""
