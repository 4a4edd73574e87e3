"""The types of numbers on the command line accept their bounds and nothing beyond."""

import click
import pytest

from fstgrad.cli import border


@pytest.mark.parametrize(
    "name, inside, outside",
    [
        ("COUNT", ["1", "2147483647"], ["0", "2147483648", "1.5", "nan"]),
        ("INTEGER", ["-2147483648", "2147483647"], ["-2147483649", "2147483648"]),
        ("SEED", ["0", "9223372036854775807"], ["-1", "9223372036854775808"]),
        ("POSITIVE", ["5e-324", "1e308"], ["0", "-1", "inf", "nan"]),
        ("NOT_NEGATIVE", ["0", "0.5"], ["-1e-9", "inf", "nan"]),
        ("COST", ["0", "inf"], ["-1e-9", "nan", "-inf"]),
    ],
)
def test_bounds_of_numbers(name, inside, outside):
    kind = getattr(border, name)
    for text in inside:
        wanted = float(text) if isinstance(kind, border.Number) else int(text)
        assert kind.convert(text, None, None) == wanted
    for text in outside:
        with pytest.raises(click.BadParameter):
            kind.convert(text, None, None)
