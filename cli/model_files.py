"""Write the loss and the reading options of a model to its file, and read them again.

A model file may come from an untrusted source, so it describes a loss by data only: a name of the
package, numbers, the scores of a matrix, and the text of rules, which run no code.  Files of the
user (code, transducers) that a model names are never loaded.
"""

import dataclasses
import pathlib
from typing import Any, cast, get_args

from fstgrad.cli.command import reject_options
from fstgrad.cli.loss_options import LOSSES, MODEL_LOSS, LossChoice, build_loss
from fstgrad.cli.pair_options import ModelReading, Reading
from fstgrad.cli.reading import examples
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import real_array
from fstgrad.core.errors import InvalidInputError
from fstgrad.grammars import NAMES
from fstgrad.grammars.loading import MOST_BYTES
from fstgrad.io import Tokens, read_confusion, shown
from fstgrad.learning.sequence import IDS, SequenceModel
from fstgrad.losses import Loss, RuleLoss, SubstitutionMatrix
from fstgrad.losses.transducers.rules import RuleSet

RULES = ".rules"
_NUMBERS = {
    field.name: int if "int" in str(field.type) else float
    for field in dataclasses.fields(LossChoice)
    if str(field.type) in ("float | None", "int | None")
}


def describe_training(
    choice: LossChoice, reading: ModelReading, tags: int | None, alphabet: Alphabet
) -> dict[str, Any]:
    """Return the description of a loss and a reading for a model file: names, numbers, rules."""
    if isinstance(choice.matrix, str):
        scores = SubstitutionMatrix.read(choice.matrix).over(alphabet)
        choice = dataclasses.replace(choice, matrix=scores.tolist())
    if isinstance(choice.confusion, str):
        costs = read_confusion(
            choice.confusion,
            alphabet,
            substitute_cost=1.0 if choice.substitute_cost is None else choice.substitute_cost,
        )
        choice = dataclasses.replace(choice, confusion=costs.tolist(), substitute_cost=None)
    names = ("tokens_x", "tokens_y", "decompose")
    reading_options = {"tags": tags, **{name: getattr(reading, name) for name in names}}
    description: dict[str, Any] = {"choice": dataclasses.asdict(choice), "reading": reading_options}
    if choice.loss.endswith(RULES):
        description["rules"] = pathlib.Path(choice.loss).read_text(encoding="utf-8")
    return description


def open_model(path: str) -> tuple[SequenceModel, ModelReading, int | None]:
    """Return a model that `train` wrote, its reading options, and the column of its tags (or None).

    `model_loss` returns its loss.

    Raises
    ------
    InvalidInputError
        The file is not such a model.
    """
    model = SequenceModel.load(path)
    default = {"tokens_x": "chars", "tokens_y": "chars"}
    if model.joined_ == IDS:  # in files, ids are the words "0", "1", ..., "10"
        model.joined_, default["tokens_y"] = False, "words"
    options = model.about_.get("reading", default)
    tokens = [options.get(f"tokens_{side}") for side in "xy"] if isinstance(options, dict) else []
    if len(tokens) != 2 or any(token not in get_args(Tokens) for token in tokens):
        raise InvalidInputError(
            f"{path}: the reading options in the model are {shown(options)}; tokens_x and tokens_y "
            "must be chars or words"
        )
    tags = options.get("tags")
    if tags is not None and (not isinstance(tags, int) or isinstance(tags, bool) or tags < 1):
        raise InvalidInputError(
            f"{path}: the column of tags in the model is {shown(tags)}; it must be a whole number "
            ">= 1"
        )
    tokens_x, tokens_y = cast(list[Tokens], tokens)
    decompose = options.get("decompose")
    if decompose not in (None, "nfd"):
        raise InvalidInputError(
            f"{path}: the decomposition in the model is {shown(decompose)}; it must be nfd or "
            "absent"
        )
    return model, ModelReading(tokens_x, tokens_y, None, decompose), tags


def model_loss(path: str, model: SequenceModel, choice: LossChoice | None = None) -> Loss | None:
    """Return the loss of the command line, or with `--loss model` that of the model file.

    Without a choice, it is that of the file.  The result None means no loss.

    Raises
    ------
    InvalidInputError
        The file names a loss outside the package, or has a parameter of the wrong type.
    click.UsageError
        A parameter of the loss is on the command line with `--loss model`.
    """
    if choice is not None:
        if choice.loss != MODEL_LOSS:
            return build_loss(choice, model.alphabet_)
        names = [field.name for field in dataclasses.fields(LossChoice) if field.name != "loss"]
        reject_options(names, "with --loss model")
    if "choice" not in model.about_:
        return model.loss_
    try:
        if "rules" in model.about_:
            return _stored_rules(path, model.about_["rules"], model.alphabet_)
        return build_loss(_stored_choice(model.about_["choice"], model.alphabet_), model.alphabet_)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path}: {error}") from error


def inputs_and_targets(
    path: str, reading: Reading, tags: int | None
) -> tuple[list[Any], list[tuple[str, ...]]]:
    """Return the list of inputs and the list of targets of a file of pairs."""
    read = list(examples(path, reading, tags, empty=True))
    return [x for x, _ in read], [y for _, y in read]


def _stored_rules(path: str, text: object, alphabet: Alphabet) -> RuleLoss:
    """Return the loss of the rules in a model file."""
    if not isinstance(text, str) or len(text) > MOST_BYTES:
        raise InvalidInputError(
            f"the rules in the model are {shown(text)[:100]}, not the text of a grammar"
        )
    return RuleLoss(RuleSet.parse(text, f"{path}: rules"), alphabet)


def _stored_choice(stored: object, alphabet: Alphabet) -> LossChoice:
    """Return the loss options of a model file, after checking their types."""
    names = [field.name for field in dataclasses.fields(LossChoice)]
    if not isinstance(stored, dict) or not set(stored) <= set(names) or "loss" not in stored:
        raise InvalidInputError(f"the loss in the model is {shown(stored)}, not a name and numbers")
    values: dict[str, Any] = dict.fromkeys(names)
    for name, value in stored.items():
        if value is not None or name == "loss":
            values[name] = _stored_value(name, value, len(alphabet))
    return LossChoice(**values)


def _stored_value(name: str, value: object, symbols: int) -> Any:
    if name == "loss":
        if isinstance(value, str) and (value in LOSSES or value in NAMES):
            return value
        raise InvalidInputError(
            f"the model was trained with the loss {shown(value)}, a file that the model "
            "does not contain; give it with --loss"
        )
    if name in ("matrix", "confusion"):
        if isinstance(value, str):
            raise InvalidInputError(
                f"--{name} in the model is a file, which the model does not contain; give --loss "
                f"and --{name}"
            )
        return real_array(name, value, (symbols, symbols)).tolist()  # type: ignore[arg-type]
    kind: type | tuple[type, ...] = {"log": bool, "free_ends": str}.get(name, (int, float))
    if _NUMBERS.get(name) is int:
        kind = int
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise InvalidInputError(
            f"the parameter {name} in the model is {shown(value)}; it has the wrong type"
        )
    return value
