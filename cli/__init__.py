"""The command line, installed as `fstgrad.cli`."""


def run() -> None:
    """Run `fstgrad`; a SIGINT while it is loaded ends the process without a traceback."""
    from fstgrad.cli.interrupts import end_silently

    end_silently()
    from fstgrad.cli.main import main

    main()
