"""Rewrite messages of the library for the command line: `max_states=9` to `--max-states 9`."""

import re
from collections.abc import Sequence

import click

_SAMPLED = r"fg\.sampled_softmax_margin(\([^)]*\))?"
# (pattern of a remedy of the library, name of the option, value with the same effect)
_REMEDIES = (
    (r"Alphabet\.from_sequences\(\[s\.split.*ErrorRate", "alphabet", "with one word per line"),
    (_SAMPLED, "method", "sampled"),
    (r"fg\.choose_cap\([^)]*\)(\.automaton)?", "cap", "auto"),
    (r"fg\.PairObjective\([^)]*\)", "cap", "auto"),
    (r"infer\('([\w-]+)'\)", "method", r"\1"),
    (r"decode\('([\w-]+)'\)", "method", r"\1"),
    (r"the table of symbols \(words\.txt in Kaldi and k2\)", "symbols", "words.txt"),
    (r"iconv -f LATIN1 -t UTF-8 \(or -f UTF-16\)", "encoding", "latin1 (or utf-16)"),
    (r"max_(?:memory|bytes)( ?= ?|\b)", "max_gib", ""),
)
_METHODS = r"(?<![\w-])method '[\w-]+'(, '[\w-]+')*( or '[\w-]+')?"
_ONLY_IN_PYTHON = (
    r"\blet proposal='auto' choose a band, ",
    r"\bpass one as initial=, or ",
    r", or give infeasible='zero'",
    r": lattice\.compile\(loss, gold\)\.closest\(\)",
)
# (argument, the parameter of a command that sets it)
_OPTION_OF_ARGUMENT = (
    ("rng", "seed"),
    ("kind", "objective"),
    ("n_jobs", "threads"),
    ("n_jobs", "jobs"),
)


def with_option_names(text: str, parameters: Sequence[click.Parameter] | None = None) -> str:
    """Return a message with arguments of Python replaced by options of a command.

    parameters : those of the command; by default, those of the command of the current context.
    """
    if parameters is None:
        context = click.get_current_context(silent=True)
        parameters = context.command.params if context is not None else ()
    flags = {
        parameter.name: max(parameter.opts, key=len)
        for parameter in parameters
        if isinstance(parameter, click.Option) and parameter.name
    }
    flags |= {flag.lstrip("-").replace("-", "_"): flag for flag in flags.values()}
    flags |= {argument: flags[name] for argument, name in _OPTION_OF_ARGUMENT if name in flags}
    for pattern, name, value in _REMEDIES:
        if name in flags:
            text = re.sub(pattern, f"{flags[name]} {value}".rstrip() + " " * (not value), text)
    if flags:
        text = re.sub(_SAMPLED, "fstgrad grad --method sampled", text)
    if "method" in flags:
        text = re.sub(_METHODS, lambda match: "--" + match[0].replace("'", ""), text)
    for pattern in _ONLY_IN_PYTHON:
        text = re.sub(pattern, "", text)
    if flags:
        text = re.sub(
            r"(?P<start>\bno option .*; it has )(?P<names>[\w, ]+)$",
            lambda match: match["start"] + _option_names(match["names"], flags),
            text,
        )
    text = text.replace("  ", " ")
    for parameter in parameters:
        if isinstance(parameter, click.Option) and parameter.secondary_opts:  # --header/--no-header
            text = text.replace(f"{parameter.name}=True", parameter.opts[0])
            text = text.replace(f"{parameter.name}=False", parameter.secondary_opts[0])
    for name, flag in flags.items():
        text = re.sub(rf"(?<![\w.-]){name}=(['\"])([\w.-]*)\1", rf"{flag} \2", text)  # cap='auto'
        text = re.sub(rf"(?<![\w.-]){name}=(?=[\w+-]|\.\d)", f"{flag} ", text)  # cap=9
        text = re.sub(rf"(?<![\w.-]){name}=", flag, text)  # (cap=)
        text = re.sub(rf"(^|[:;] ){name}(?= (is|has) )", rf"\1{flag}", text)  # cap is -1
        text = re.sub(rf"(?<=option )'{name}'", flag, text)
        text = re.sub(rf"\b(raise|lower|smaller|larger|give) {name}(?![\w=-])", rf"\1 {flag}", text)
        if "_" in name:
            text = re.sub(rf"(?<![\w./-]){name}\b(?![./]\w)", flag, text)  # not in names of files
    for name, flag in flags.items():
        text = re.sub(rf"(--[\w-]+ or ){name}(?![\w=-])", rf"\1{flag}", text)
    return text


def _option_names(names: str, flags: dict[str, str]) -> str:
    """Return the options of arguments; others exist only in Python."""
    return ", ".join(flags[name] for name in names.split(", ") if name in flags) or "none"
