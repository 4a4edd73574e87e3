"""Errors name what is wrong by the name that the caller knows, and their advice can be followed."""

import ast
import contextlib
import importlib
import inspect
import itertools
import re
import shutil

import click
import numpy as np
import pytest

import fstgrad as fg
from fstgrad.cli.main import fstgrad
from tests.borders.columns import callables, code_of_call
from tests.fuzz.commands import TEMPLATES, fill
from tests.fuzz.examples import Choice, code_of, recorded
from tests.fuzz.runner import captured
from tests.fuzz.seeds import write_seeds
from tests.fuzz.wrong import Call

ABC = fg.Alphabet("ab")
EDIT = fg.EditDistance(ABC)
LATTICE = fg.Lattice.from_nbest(["ab", "b"], np.zeros(2), ABC)
GRAPH = fg.PairwiseMRF(np.zeros((2, 2)), np.zeros((2, 2)), np.array([[0, 1]]))
IDS, TREES, HEADS = np.array([[0, 1], [1, 1]]), np.zeros((2, 3, 3)), np.array([[0, 1], [2, 0]])
# right arguments by name, for the first prefix of a function that fits
RIGHT = {
    "ctc": {"scores": np.zeros((2, 4, 3)), "gold": np.array([[1], [2]]),
            "loss": fg.EditDistance(fg.Alphabet("_ab"))},
    "lattice": {"scores": np.zeros((2, LATTICE.num_arcs)), "lattice": [LATTICE] * 2,
                "gold": ["ab", "b"], "loss": EDIT},
    "spanning_tree": {"scores": TREES, "p_scores": TREES, "q_scores": TREES, "gold": HEADS,
                      "heads": HEADS, "allowed": HEADS, "costs": TREES, "single_root": True,
                      "features": TREES[..., None], "target": np.zeros(1)},
    "mrf_dense": {"node_scores": np.zeros((2, 4, 4)), "image": np.zeros((4, 4)),
                  "kernels": [importlib.import_module("fstgrad.mrf.dense").Kernel(0.5, 1.0)]},
    "mrf": {"node_scores": np.zeros((2, 2, 2)), "edge_scores": np.zeros((2, 2)), "gold": IDS,
            "graph": GRAPH},
    "linear_chain": {"emissions": np.zeros((2, 2, 2)), "transitions": np.zeros((2, 2)),
                     "gold": IDS},
    "nbest": {"log_probs": np.zeros((2, 1)), "hypotheses": IDS[:, None], "references": IDS,
              "loss": EDIT},
    "": {"scores": np.zeros((2, 2, 2)), "gold": IDS, "loss": EDIT},
}  # fmt: skip
NUMBERS = (int, float, np.integer, np.floating)


def is_float(value):
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def beyond(value):
    """An index, a number or a name out of range; masks for scores."""
    if isinstance(value, np.ndarray):
        return value + 9 if value.dtype.kind in "iu" else np.full(value.shape, -np.inf)
    return -7 if isinstance(value, NUMBERS) and not isinstance(value, bool) else "zz"


BROKEN = {
    "another type": lambda value: object(),
    "a number": lambda value: np.zeros((), value.dtype) if isinstance(value, np.ndarray) else 3,
    "one axis more": lambda value: value[..., None] if isinstance(value, np.ndarray) else [[value]],
    "beyond": beyond,
    "NaN": lambda value: value + np.nan if is_float(value) else float("nan"),
}
KINDS = len(BROKEN)


def chosen(number):
    """Two of the kinds, so that all pairs of neighbours occur; nightly runs have all kinds."""
    kinds = list(BROKEN)
    return [kinds[number % KINDS], kinds[(number + 1 + number // KINDS) % KINDS]]


def functions(framework):
    package = pytest.importorskip(f"fstgrad.{framework}")
    for name in package.__all__:
        public = getattr(package, name)
        if inspect.isfunction(public) and name.split("_")[-1] not in ("of", "paths"):
            known = next(right for start, right in RIGHT.items() if name.startswith(start))
            names = inspect.signature(public).parameters
            yield name, public, {k: v for k, v in known.items() if k in names}


def error_of(call, given):
    """The message of an error of the library; what else is raised, other tests find."""
    try:
        call(given)
    except fg.FstgradError as error:
        return str(error)
    except Exception:
        return ""
    return ""


def names_of(call):
    """The names that an error may use: arguments, also those of the object; and the class."""
    function = call.function
    owner = getattr(function, "__self__", None)
    kind = function if inspect.isclass(function) else owner
    kind = kind if inspect.isclass(kind) else type(kind)
    names = {k.lstrip("*") for k in call.arguments} | set(inspect.signature(function).parameters)
    if kind.__module__.startswith("fstgrad"):
        names |= {kind.__name__}
        with contextlib.suppress(ValueError, TypeError):
            names |= set(inspect.signature(kind).parameters)
    return names


def wrong_message(call, argument, value, message):
    """What is wrong with the message of an argument with a wrong value, "" if nothing is."""
    names, texts = names_of(call), [v for v in call.arguments.values() if isinstance(v, str)]
    advice = message.replace(repr(value), "")
    words = set(re.findall(r"\w+", message))
    is_shown = any(text and text in message for text in [*texts, value] if isinstance(text, str))
    if not (words & (names | {name[:-1] for name in names}) or is_shown):
        return "no argument of the call"
    for option in re.findall(r"\b([a-z_]+)=(?!=)", advice):
        if option not in names | {"capacity", "array"}:  # "array=0.0" of scikit-learn is a value
            return f"{option} is no argument of the call"
    for name in re.findall(r"\bfg\.(\w+)", advice):
        if not hasattr(fg, name):
            return f"fg.{name} does not exist"
    parameters = inspect.signature(call.function).parameters
    for change in followed(advice, argument):
        given = {k: v for k, v in change.items() if k in parameters}
        if given and error_of(call, call.arguments | {argument: value} | given) == message:
            return f"{given} changes nothing"
    return ""


CHOICES = re.compile(r"; choose (?:one of )?(?!one|them)([\w-]+)")


def followed(advice, argument):
    """The arguments that an error advises to give."""
    if choices := CHOICES.search(advice):
        yield {argument: choices[1]}
    for option, text in re.findall(r"(?:give|pass) ([a-z_]+)=('[\w-]+'|True|False|\d+)", advice):
        yield {option: ast.literal_eval(text)}


def messages(calls, *, kinds):
    """Break each argument of calls; yield what is wrong with the errors."""
    numbers = itertools.count()
    for call in calls:
        for argument, right in call.arguments.items():
            if inspect.isroutine(right) or argument.startswith("*"):  # goes to another function
                continue
            for kind in kinds(next(numbers)):
                try:
                    value = BROKEN[kind](right)
                except Exception:  # no such form
                    continue
                message = error_of(call, call.arguments | {argument: value})
                if message and (what := wrong_message(call, argument, value, message)):
                    yield f"{call.name}({argument}: {kind}): {what}: {message}"


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_an_error_names_an_argument_of_the_function_that_was_called(framework):
    make = importlib.import_module("torch").tensor if framework == "torch" else np.asarray

    def converted(value):
        return make(value) if isinstance(value, np.ndarray) else value

    def calls():
        for name, function, right in functions(framework):
            if framework == "torch" and name.startswith("lattice"):
                right = right | {"scores": list(right["scores"])}
            given = {k: [*map(converted, v)] if isinstance(v, list) else v
                     for k, v in right.items()}  # fmt: skip

            def run(function=function, **given):
                return function(**{k: converted(v) for k, v in given.items()})

            run(**given)  # the arguments are right
            run.__signature__ = inspect.signature(function)
            yield Call(name, run, given)

    with one_thread(framework):
        found = list(messages(calls(), kinds=chosen))
    assert not found, "\n".join(found)


@contextlib.contextmanager
def one_thread(framework):
    """Keep PyTorch from spinning in threads beside each short call."""
    if framework != "torch":
        yield
        return
    torch = importlib.import_module("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


ELSEWHERE = Choice(without=("fstgrad.jax", "fstgrad.torch", "fstgrad.plot"))  # above; pictures


@pytest.mark.parametrize("kinds", [
    pytest.param("chosen", marks=pytest.mark.slow), pytest.param("all", marks=pytest.mark.nightly)
])  # fmt: skip
@pytest.mark.filterwarnings("ignore")  # of wrong values
def test_an_error_of_a_function_of_numpy_names_an_argument(tmp_path, monkeypatch, kinds):
    listed = {code_of(thing) for _, thing in callables()}
    every = recorded(tmp_path, ELSEWHERE)
    monkeypatch.chdir(tmp_path)
    calls = [call for call in every if code_of_call(call) in listed]
    assert len(calls) > 400
    one = kinds == "chosen"
    found = list(messages(calls, kinds=lambda n: chosen(n)[:1] if one else BROKEN))
    assert not found, "\n".join(found)


FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*|(?<![\w-])-[a-z]\b")
VALUES = ("zz", "-1", "nan")
PROGRAMS = re.compile(r"iconv [-\w ]+")


def wrong_line(parameters, option, value, err, again):
    """What is wrong with the error of an option with a wrong value, "" if nothing is."""
    line = PROGRAMS.sub("", err.strip().splitlines()[-1]) if err.strip() else ""
    flags = {flag for p in parameters for flag in (*p.opts, *p.secondary_opts)}
    named = set(FLAG.findall(line))
    words = {p.name for p in parameters} & set(re.findall(r"\w+", line))
    if not (named & flags or words or value in line):
        return "no option or value of the command"
    if named - flags - {"--help"}:
        return f"{named - flags} is no option of the command"
    if python := re.search(r"\b[a-z_]+=(?!=)", line.replace(value, "")):
        return f"{python[0]} is Python"
    choices = CHOICES.search(line)
    if choices and again(choices[1]).strip() == err.strip():
        return f"{option.opts[-1]} {choices[1]} changes nothing"
    return ""


@pytest.mark.filterwarnings("default")  # as on a command line
def test_an_error_of_a_command_names_an_option(tmp_path, monkeypatch):
    seeds, work, seen, found = tmp_path / "seeds", tmp_path / "work", set(), []
    for folder in (seeds, work):
        folder.mkdir()
    monkeypatch.chdir(work)
    write_seeds(seeds, captured)
    for template in TEMPLATES:
        case = fill(template, seeds, work)
        words, command = list(case.arguments), fstgrad
        while isinstance(command, click.Group):
            command = command.get_command(click.Context(command), words.pop(0))
        for option in command.params:
            if (command, option.name) in seen or getattr(option, "is_flag", True):
                continue  # arguments have no flag, and flags no value
            seen.add((command, option.name))
            value = VALUES[len(seen) % len(VALUES)]
            for name, data in case.files.items():
                (work / name).write_bytes(data)

            def run(given, option=option, case=case):
                flag = max(option.opts, key=len)
                return captured([*case.arguments, flag, given])

            code, _, err = run(value)
            if code and (
                what := wrong_line(command.params, option, value, err, lambda given: run(given)[2])
            ):
                found.append(f"{template} {option.opts[-1]} {value}: {what}: {err}")
            for path in work.glob(f"{value}*"):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert len(seen) > 300
    assert not found, "\n".join(found)


class Limited(fg.EditDistance):
    """A loss with the limit of a small machine."""

    def compile(self, target, length=None, **options):
        return super().compile(target, length, **options | {"max_states": 3000})


# a call that fails, and the same call with the advice of its message followed
ADVICE = {
    "a repeated label": (
        lambda t, f: f.ctc_nll(t.zeros(1, 2, 2), t.tensor([[1, 1]])),
        lambda t, f: f.ctc_nll(t.zeros(1, 2, 2), t.tensor([[1, 1]]), infeasible="zero"),
        "infeasible='zero'",
    ),
    "several roots": (
        lambda t, f: fg.SpanningTrees(np.zeros((3, 3)), single_root=True).nll([0, 0]),
        lambda t, f: fg.SpanningTrees(np.zeros((3, 3)), single_root=False).nll([0, 0]),
        "single_root=False",
    ),
    "a large automaton": (
        lambda t, f: f.risk(t.zeros(24, 26), t.arange(24), Limited(LETTERS)),
        lambda t, f: f.risk(t.zeros(24, 26), t.arange(24), Limited(LETTERS), cap=2.0),
        "cap=",
    ),
    "a band on a compiled loss": (
        lambda t, f: f.risk(t.zeros(2, 2), t.tensor([0, 1]), EDIT.compile("ab"), cap=1.0),
        lambda t, f: f.risk(t.zeros(2, 2), t.tensor([0, 1]), EDIT.compile("ab", cap=1.0)),
        "give cap, band or prune to compile",
    ),
    "a cap without a loss": (
        lambda t, f: f.softmax_margin(t.zeros(2, 2), t.tensor([0, 1]), cap=1.0),
        lambda t, f: f.softmax_margin(
            t.zeros(2, 2), t.tensor([0, 1]), fg.EditDistance(ABC), cap=1.0
        ),
        "give a loss too",
    ),
    "no n-gram in common": (
        lambda t, f: fg.NGram(ABC, 2).compile("a", 2),
        lambda t, f: fg.NGram(ABC, 2, smoothing=1.0).compile("a", 2),
        "smoothing > 0",
    ),
    "one symbol for a text": (
        lambda t, f: fg.Alphabet("ab").encode("abc"),
        lambda t, f: fg.Alphabet("abc").encode("abc"),
        "add it to the alphabet",
    ),
}
LETTERS = fg.Alphabet("abcdefghijklmnopqrstuvwxyz")


@pytest.mark.parametrize("name", ADVICE)
def test_following_the_advice_changes_the_outcome(name):
    torch = pytest.importorskip("torch")
    fgt = importlib.import_module("fstgrad.torch")
    broken, followed, advice = ADVICE[name]
    with pytest.raises(fg.FstgradError, match=re.escape(advice)):
        broken(torch, fgt)
    assert followed(torch, fgt) is not None


def test_gold_is_called_gold():
    """Not structure, labels, or sequence, whose names only other functions have."""
    b, zeros = EDIT.compile("ab"), np.zeros((2, 2))
    for call in (
        lambda: fg.softmax_margin(zeros, "abb", b), lambda: fg.softmax_margin(zeros, [[0, 1]]),
        lambda: fg.softmax_margin(zeros, 3), lambda: fg.hinge(zeros, [0, 7], b),
        lambda: GRAPH.hamming_costs([0, 5]), lambda: GRAPH.hamming_costs([[0, 1]]),
        lambda: GRAPH.softmax_margin([0, 5]), lambda: GRAPH.nll([0, 5]),
        lambda: fg.SpanningTrees(TREES[0], single_root=True).nll(3),
    ):  # fmt: skip
        with pytest.raises(fg.InvalidInputError, match=r"^gold"):
            call()


def test_no_advice_about_a_loss_where_there_is_none():
    with pytest.raises(fg.InfeasibleError) as caught:
        fg.StringDistribution(np.array([[0.0, 0.0], [-np.inf, -np.inf]])).log_partition()
    assert "smoothing" not in str(caught.value)
    assert "loss" not in str(caught.value)
    fgt = pytest.importorskip("fstgrad.torch")
    torch = importlib.import_module("torch")
    scores = torch.zeros(1, 3, 3).index_fill(2, torch.tensor([0]), -torch.inf)
    with pytest.raises(fg.InfeasibleError, match=r"the blank, 0") as caught:
        fgt.ctc_nll(scores, torch.tensor([[1, 1]]))
    assert "smoothing" not in str(caught.value)


def test_a_preview_shows_blanks():
    with pytest.raises(fg.AlphabetError, match=r"\(a ' '\)"):
        fg.Alphabet(["a", " "]).encode("q")
