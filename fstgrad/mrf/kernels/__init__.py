"""Compiled loops of the Markov random fields; imported when they are first needed."""
