"""Match the items of two files by their names, or by position if those of a file have none.

Index
-----
- `Items` : the names of a file's items, and words for errors.
- `matched` : the partner of each item.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fstgrad.core.errors import InvalidInputError

SHOWN = 5  # names listed in an error


class Items(NamedTuple):
    """The items of a file: their names, None without one, and what to call them and their names.

    Examples: `what` is "sentence" and `key` "sent_id"; `unnamed` tells how to leave the names out,
    `repeated` what else to do with a name that repeats.
    """

    names: Sequence[str | None]
    file: str
    what: str
    key: str = "name"
    unnamed: str = ""
    repeated: str = ""


def matched(wanted: Items, found: Items) -> list[int]:
    """Return for each wanted item the index of its partner among the items found.

    Raises
    ------
    InvalidInputError
        Only some items of a file have names, names repeat, items have no partner, or items found
        that match by position are numbered in another order.
    """
    here, there = set(wanted.names), set(found.names)
    if here <= {None} or there <= {None}:
        for own in (wanted, found):
            if not own.names:
                raise InvalidInputError(f"{own.file} has no {own.what}s; give at least one")
        if len(wanted.names) != len(found.names):
            raise InvalidInputError(
                f"{_count(wanted)} and {_count(found)}, which match by position because those of "
                f"{(wanted if here <= {None} else found).file} have no names; give the same number"
            )
        _check_order(found, wanted)
        return list(range(len(wanted.names)))
    unnamed = dict.fromkeys(items.unnamed for items in (wanted, found) if items.unnamed)
    remedy = "".join(f", or {way}" for way in unnamed)
    for own in (wanted, found):
        lacking = [str(i) for i, name in enumerate(own.names, start=1) if name is None]
        if lacking:
            raise InvalidInputError(
                f"{own.file} has no {own.key} for {own.what} {listed(lacking)}, but others have "
                f"one; name them all{remedy}"
            )
        twice = [repr(name) for name, count in Counter(own.names).items() if count > 1]
        if twice:
            other = f", or {own.repeated}" if own.repeated else ""
            raise InvalidInputError(
                f"{own.file} has the {own.key} {listed(twice)} more than once; make them "
                f"different{remedy}{other}"
            )
    lacks = [
        (other, own, missing)
        for own, other in ((wanted, found), (found, wanted))
        if (missing := [repr(name) for name in own.names if name not in set(other.names)])
    ]
    if lacks:
        said = "; ".join(f"{one.file} has no {one.what} {listed(lost)}" for one, _, lost in lacks)
        short, full, _ = lacks[0]
        if len(lacks) == 1 and set(short.names) & set(full.names):
            advice = f"add what it lacks, or leave it out of {full.file}"
        else:
            advice = f"use the {wanted.key}s of {wanted.file} as names in {found.file}{remedy}"
        raise InvalidInputError(f"{said}; {advice}")
    place = {name: i for i, name in enumerate(found.names)}
    return [place[name] for name in wanted.names]


def _check_order(found: Items, wanted: Items) -> None:
    """Raise InvalidInputError if the items found are numbered, but not in their order."""
    numbers = [int(n) for n in found.names if n and n.isascii() and n.isdigit() and len(n) < 19]
    if len(numbers) == len(found.names) and numbers != sorted(numbers):
        raise InvalidInputError(
            f"{found.file} has the {found.what}s {listed(map(repr, found.names))} in this order, "
            f"and they match by position because {wanted.file} has no {wanted.key}s; write them in "
            f"the order of their numbers, or give each {wanted.what} its {wanted.key}"
        )


def listed(names: Iterable[str]) -> str:
    """Return the first names and how many more there are, for an error."""
    names = list(names)
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _count(items: Items) -> str:
    many = "" if len(items.names) == 1 else "s"
    return f"{items.file} has {len(items.names):,} {items.what}{many}"
