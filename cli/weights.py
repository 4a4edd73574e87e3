"""Make the weights of the features from `--weights`, `--random-weights` and `--order`."""

import math

import click
import numpy as np

from fstgrad.cli.options import Weights
from fstgrad.core.alphabet import Alphabet
from fstgrad.core.checks import FloatArray, real_array
from fstgrad.core.errors import InvalidInputError, MemoryLimitError
from fstgrad.io import memory_limit, read_weights
from fstgrad.learning.features import Features

MAX_AXES = 32  # of an array, in all versions of numpy


def read_given(model: Weights) -> tuple[FloatArray | None, Alphabet | None]:
    """Return the array of `--weights` and its alphabet; None for what the options lack.

    Raises
    ------
    click.UsageError
        --random-weights is given too.
    """
    if model.weights is None:
        return None, None
    if model.random_weights is not None:
        raise click.UsageError("--weights and --random-weights exclude each other; give one")
    return read_weights(model.weights)


def check_order(order: int, symbols: int) -> None:
    """Raise MemoryLimitError if a table of `symbols` ** `order` numbers is too large."""
    most = memory_limit() / 8
    if order * math.log(max(symbols, 1)) > math.log(most) or order >= MAX_AXES:
        raise MemoryLimitError(
            f"--order is {order}, and a table of all {order}-grams of {symbols} symbols is too "
            "large; give a smaller --order"
        )


def make_weights(model: Weights, given: FloatArray | None, features: Features) -> FloatArray:
    """Return weights of the shape (n,) * q of the features: given, standard normal, or zero.

    Raises
    ------
    InvalidInputError
        The given weights have a different shape, or are not finite.
    """
    if given is not None:
        try:
            return real_array("weights", given, features.shape)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"{model.weights}: {error} (order {model.order}, "
                f"{len(features.alphabet)} symbols); see --order and --alphabet"
            ) from error
    if model.random_weights is not None:
        return np.random.default_rng(model.random_weights).normal(size=features.shape)
    return np.zeros(features.shape)
