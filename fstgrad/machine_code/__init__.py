"""Machine code of kernels: where it is kept, and what a wheel brings.

Reading order
-------------
- `signatures` : types of arguments as text.
- `cache` : the files of compiled kernels, of the user and of the wheel.
- `precompile` : the list of kernels for a user's first steps, and their compilation for a wheel.
"""
