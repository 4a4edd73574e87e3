"""Markov random fields (McAllester, TTIC 31230, exponential softmax on graphs)."""
