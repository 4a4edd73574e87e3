"""Every public name has a page of the API and an example that runs; so has every public method.

An example is a doctest (`test_docstrings`), or a block of the page that lists the name, which
`test_documents` runs.  A method counts as shown where an example of its class, or of a class that
inherits it, uses its name.
"""

import collections
import inspect
import pathlib
import re

import pytest

from tests.helpers.public import MODULES, public

PAGES = pathlib.Path(__file__).parent.parent / "docs/api"
LISTS = re.compile(
    r"currentmodule:: (\S+)\n\n\.\. autosummary::\n   :toctree: generated\n\n((?:   \w+\n)+)"
)


def listed():
    """Return {public name with its module: the python blocks of the page that lists it}."""
    found = {}
    for path in PAGES.glob("*.md"):
        text = path.read_text(encoding="utf-8")
        code = "\n".join(re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
        for module, names in LISTS.findall(text):
            found |= {f"{module}.{name}": code for name in names.split()}
    return found


BLOCKS = listed()


def doctests(of):
    """Return the lines of the doctests of a class or function."""
    return "\n".join(re.findall(r"(?:>>>|\.\.\.) (.*)", inspect.getdoc(of) or ""))


@pytest.mark.parametrize("module", MODULES)
def test_every_name_has_a_page_and_an_example(module):
    names = public(module)
    missing = [name for name in names if f"{module}.{name}" not in BLOCKS]
    bare = [
        name
        for name, value in names.items()
        if not doctests(value) and not re.search(rf"\b{name}\b", BLOCKS.get(f"{module}.{name}", ""))
    ]
    assert not missing, f"without a page: {missing}"
    assert not bare, f"without an example: {bare}"


def methods(cls):
    """Yield (name, function, member) of the public methods that the project writes."""
    for name in dir(cls):
        member = inspect.getattr_static(cls, name)
        for inner in ("__func__", "fget", "func"):
            function = getattr(member, inner, member)
            if inspect.isfunction(function):
                break
        if name.startswith("_") or not inspect.isfunction(function):
            continue
        if (function.__doc__ or "").startswith("Old name of"):
            continue
        if (function.__module__ or "").startswith("fstgrad"):
            yield name, function, member


def test_every_method_has_an_example():
    shown, places = collections.defaultdict(bool), {}
    for module in MODULES:
        for owner, cls in public(module).items():
            if not inspect.isclass(cls) or issubclass(cls, Exception):
                continue
            code = BLOCKS.get(f"{module}.{owner}", "") + "".join(map(doctests, cls.__mro__[:-1]))
            for name, function, member in methods(cls):
                places.setdefault(function, f"{owner}.{name}")
                shown[function] |= bool(doctests(member) or re.search(rf"\.{name}\b", code))
    bare = sorted(place for function, place in places.items() if not shown[function])
    assert len(places) > 300
    bare = [place for place in bare if place != "SequenceModel.prepare"]  # for `load`
    assert not bare, f"{len(bare)} methods without an example: {bare}"
