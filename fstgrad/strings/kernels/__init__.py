"""Compiled loops over A o B, each beside a readable numpy twin in `passes` or `chain`."""
