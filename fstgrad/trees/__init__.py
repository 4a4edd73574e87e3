"""Spanning trees (Zmigrod, Vieira, Cotterell, TACL 2021)."""
