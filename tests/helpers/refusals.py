"""Calls that have to raise an error, gone through as one case."""

import fstgrad as fg


def not_refused(calls, error=fg.InvalidInputError):
    """The lines of the calls that return, or raise something other than `error`, and what it is."""
    found = []
    for call in calls:
        try:
            outcome = call()
        except error:
            continue
        except Exception as other:
            outcome = other
        found.append(f"line {call.__code__.co_firstlineno}: {outcome!r}")
    return found
