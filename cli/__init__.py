"""The command line, installed as `fstgrad.cli`.

Reading order
-------------
- `error_translation`, `output`, `interrupts` : messages in terms of options, texts and progress on
  the streams, signals.
- `parameter_types`, `command` : types of files and numbers; commands, and groups of options.
- `loss_options`, `rescoring`, `pair_options` : `--loss` and its parameters; scores of lattices; the
  other options of commands that read pairs.
- `reading`, `model_files`, `problem`, `resume` : rows of files, files of models, the objective that
  the options describe, runs that continue.
- `commands`, `command_table` : the commands; their names, with a line of help each.
- `main` : the entry point, and the exit codes of errors.
"""


def run() -> None:
    """Run `fstgrad`; a SIGINT while it is loaded ends the process without a traceback."""
    from fstgrad.cli.interrupts import end_silently_on_sigint

    end_silently_on_sigint()
    from fstgrad.cli.main import main

    main()
