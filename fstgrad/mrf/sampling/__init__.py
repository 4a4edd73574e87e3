"""Markov chains over labelings, and the marginals that they estimate.

Reading order
-------------
- `chromatic`, `chains` : moves by colour class; the chains of all samplers.
- `annealing` : log Z by annealed importance sampling.
- `marginals` : marginals with standard errors.
"""
