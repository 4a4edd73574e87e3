"""A deterministic fuzzer of the command line, the readers and the API.

Reading order: `seeds` (a small valid file of every format), `mutations` (damage), `commands`
(command lines with damaged files and random options), `calls` (the API with wrong arguments),
`runner` (runs cases in processes of their own and judges what they do).

    make fuzz SECONDS=3600 SEED=1
"""
