"""What users pass as a table with labels, and as a batch of sequences.

Reading order
-------------
- `labels` : labels of tables and columns, and the order that they give.
- `sequences` : sequences of things, and batches of sequences.
"""
