"""Does training on the loss reduce errors?  Artificial genomes, and letters to phones.

    python benchmarks/learning.py [genomes] [phones] [--quick] [--json FILE]

docs/performance/learning.md explains the tables and the choices behind them.
"""

import json
import pathlib

import _harness

_harness.one_thread()

import _g2p  # noqa: E402
import _genome  # noqa: E402

EXPERIMENTS = {
    "genomes": ("Artificial genomes: the candidate closest to the native", _genome.rows),
    "phones": ("Letters to phones: CMUdict without stress", _g2p.rows),
}


def main() -> None:
    """Run the experiments named on the command line, by default both."""
    given = _harness.arguments(__doc__ or "", choices=tuple(EXPERIMENTS))
    done = {}
    for name in given.names or EXPERIMENTS:
        title, rows = EXPERIMENTS[name]
        done[title] = _harness.report(title, rows(given.quick))
        print()
    if given.json:
        content = {**_harness.environment(), "tables": done}
        pathlib.Path(given.json).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
