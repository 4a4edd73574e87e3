"""Kernels in Triton for what takes many launches of small operators on a GPU.

Each computes a value and its gradient for one item per program, with the equations of the file of
`fstgrad.torch.device` that has the same name, which is the definition, and which computes second
derivatives.  All writes go to places of their own, and no sum uses atomics, so that results have
the same bits every time.

Reading order
-------------
- `available` : when a kernel is used, and automatic differentiation.
- `logs` : sums of exponentials.
- `chains`, `ctc`, `trees`, `fields` : the kernels.
"""
