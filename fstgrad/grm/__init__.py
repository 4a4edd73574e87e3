"""Generalized root models for counts (Inouye, Ravikumar, Dhillon, 2016)."""
