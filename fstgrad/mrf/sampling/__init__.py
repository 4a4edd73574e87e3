"""Markov chains over labelings, and the marginals that they estimate."""
