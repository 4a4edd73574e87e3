"""Every public callable with arguments has a call that works, to be repeated with wrong ones."""

import importlib
import inspect
import pathlib
import re

import pytest

from tests.fuzz.examples import INNER, LEFT_OUT, code_of, record, recorded

SIGNATURES = pathlib.Path(__file__).parent.parent / "signatures.txt"
TAKES = re.compile(r"^(fstgrad[\w.]*)\((?!\)|cls\)|\.\.\.\))", re.MULTILINE)


def code(name):
    """Return the code of a listed name; None of a record, whose constructor checks nothing."""
    path, thing = name.split("."), importlib.import_module("fstgrad")
    for i, part in enumerate(path[1:], start=1):
        if not hasattr(thing, part):
            importlib.import_module(".".join(path[: i + 1]))
        thing = inspect.getattr_static(thing, part, None) or getattr(thing, part)
    if inspect.isclass(thing):
        made = (code_of(inspect.getattr_static(thing, key)) for key in ("__init__", "__new__"))
        return next(filter(None, made), None)
    return code_of(thing)


@pytest.mark.slow
def test_every_public_callable_has_a_call_that_works(tmp_path):
    """Of an abstract method the calls of its subclasses count."""
    listed = TAKES.findall(SIGNATURES.read_text(encoding="utf-8"))
    names = [name for name in listed if not name.startswith(LEFT_OUT) and name not in INNER]
    reached = record(tmp_path).reached
    missing = [name for name in names if (own := code(name)) and own not in reached]
    assert len(names) > 300
    assert not missing, f"without a call: {missing}"
    broken = []
    for call in recorded(tmp_path):
        try:
            call(call.arguments)
        except Exception as error:
            broken.append(f"{call.name}: {error!r}")
    assert not broken, broken
