"""The objectives in operations of PyTorch, for scores that are on a device other than the CPU.

One level of a dynamic program is computed at a time, for all items of a batch.  Nothing waits for
the device: no number is read, and all shapes are known beforehand, so that a CUDA graph can capture
a step.  A level consists of few operators with backward passes of their own, which save only their
inputs and outputs and add without atomics; these backward passes are differentiable again.

The same code runs on the CPU within `fstgrad.torch.use_device_paths()`.

Reading order
-------------
- `sums` : log-sum-exp of products.
- `arcs`, `strings` : strings along their loss automata.
- `ctc` : paths with blanks.
- `lattices` : paths of lattices.
- `chains` : linear chains; sums, best paths and samples.
- `trees` : spanning trees.
- `fields`, `dense` : random fields.
"""
