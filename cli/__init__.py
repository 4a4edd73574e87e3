"""The command line, installed as `fstgrad.cli`.

Reading order
-------------
- `error_translation`, `text`, `grouping`, `parameter_types` : messages, texts, groups of options,
  types of options.
- `report`, `page`, `resume`, `interrupts`, `epilogs` : progress and tables; HTML pages; the lines
  of a run; signals; examples in the help.
- `loss_table`, `loss_options`, `options`, `losses`, `weights` : options, and the losses and weights
  that they name.
- `examples`, `pairs`, `option_checks`, `models`, `problem` : rows of files; options without an
  effect; the parts of models and objectives.
- `loss`, `marginals`, `lattices`, `grad`, `risk` : commands for pairs and lattices.
- `align`, `train`, `predict`, `evaluate`, `compare`, `reporting` : commands for models and runs.
- `grammar_options`, `grammar_pairs`, `grammar_new`, `grammar_test`, `grammar_fit`,
  `grammar_compare`, `grammar` : `fstgrad grammar`.
- `tables` : options and files of counts.
- `trees`, `mrf`, `grm`, `doctor`, `completion` : the other commands.
- `main` : the table of commands.
"""


def run() -> None:
    """Run `fstgrad`; a SIGINT while it is loaded ends the process without a traceback."""
    from fstgrad.cli.interrupts import end_silently

    end_silently()
    from fstgrad.cli.main import main

    main()
