"""The command line, installed as `fstgrad.cli`."""
