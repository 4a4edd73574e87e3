"""Every public callable with arguments has a call that works, to be repeated with wrong ones."""

import importlib
import inspect
import pathlib
import re
import shutil

import pytest

from fstgrad.core.errors import FstgradError
from tests.fuzz.examples import INNER, code_of, record, recorded

SIGNATURES = pathlib.Path(__file__).parent.parent / "signatures.txt"
WITH_DOT = {"fstgrad.plot.automaton_svg", "fstgrad.plot.render"}  # these run the program dot
TAKES = re.compile(r"^(fstgrad[\w.]*)\((?!\)|cls\)|\.\.\.\))", re.MULTILINE)


def thing_of(name):
    """Return what a listed name stands for, and the class that it is a method of."""
    path, owner, thing = name.split("."), None, importlib.import_module("fstgrad")
    for i, part in enumerate(path[1:], start=1):
        if not hasattr(thing, part):
            importlib.import_module(".".join(path[: i + 1]))
        owner = thing if inspect.isclass(thing) else None
        thing = inspect.getattr_static(thing, part, None) or getattr(thing, part)
    return thing, owner


def codes_of(name):
    """Return what a call of a listed name may run: none of an error or a record.

    A method without a body of its own stands for those of the subclasses.
    """
    thing, owner = thing_of(name)
    if inspect.isclass(thing):
        made = (code_of(inspect.getattr_static(thing, key)) for key in ("__init__", "__new__"))
        return [] if issubclass(thing, BaseException) else list(filter(None, made))[:1]
    own = code_of(thing)
    if own is None or not is_empty(own, thing):
        return [own] if own else []
    key = name.rpartition(".")[2]
    return [code_of(kind.__dict__[key]) for kind in below(owner) if key in kind.__dict__]


def is_empty(own, function):
    return not own.co_names and set(own.co_consts) <= {function.__doc__, None}


def below(kind):
    """Return all subclasses of a class."""
    nearest = type.__subclasses__(kind)
    return [*nearest, *(far for near in nearest for far in below(near))]


@pytest.mark.filterwarnings("ignore::fstgrad.UnusedArcsWarning")  # an example shows it
@pytest.mark.slow
def test_every_public_callable_has_a_call_that_works(tmp_path):
    listed = TAKES.findall(SIGNATURES.read_text(encoding="utf-8"))
    names = [name for name in listed if name not in INNER]
    if shutil.which("dot") is None:
        names = [name for name in names if name not in WITH_DOT]
    reached = record(tmp_path).reached
    ran = {name: codes_of(name) for name in names}
    missing = [name for name, own in ran.items() if own and not reached & set(own)]
    assert len(names) > 300
    assert not missing, f"without a call: {missing}"
    broken = []
    for call in recorded(tmp_path):
        try:
            call(call.arguments)
        except FstgradError:  # the example is of an error
            continue
        except Exception as error:
            broken.append(f"{call.name}: {error!r}")
    assert not broken, broken
