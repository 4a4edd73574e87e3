"""Markov chains over labelings, and the marginals that they estimate.

Reading order
-------------
- `colours`, `chains` : moves by colour class; the moves of all samplers.
- `annealing`, `tempering` : log Z by annealed importance sampling; chains at several temperatures.
- `marginals` : marginals with standard errors.
"""
