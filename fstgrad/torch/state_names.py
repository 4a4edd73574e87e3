"""Names of the entries of parameters, kept beside a `state_dict` and compared when it is loaded.

They are in the metadata of the `state_dict`, which `torch.save` writes, and not among its tensors:
checkpoints without names load as before.
"""

from collections.abc import Sequence
from typing import Any

from fstgrad.core.errors import InvalidInputError

_KEY = "fstgrad_names"


def write_names(destination: Any, prefix: str, names: Sequence[str]) -> None:
    """Add the names to the metadata of the module with this prefix, if there are metadata."""
    metadata = getattr(destination, "_metadata", {}).get(prefix[:-1])
    if metadata is not None:
        metadata[_KEY] = tuple(names)


def check_names(what: str, metadata: dict[str, Any], names: Sequence[str], kind: str) -> None:
    """Raise InvalidInputError if a checkpoint has other names, or the same in another order."""
    found = metadata.get(_KEY)
    if found is None or tuple(found) == tuple(names):
        return
    k = next((k for k, (a, b) in enumerate(zip(found, names, strict=False)) if a != b), None)
    if k is None:
        raise InvalidInputError(
            f"{what}: the checkpoint has {len(found)} {kind}, this module {len(names)}"
        )
    raise InvalidInputError(
        f"{what}: the {kind} of the checkpoint are others or in another order: number {k} is "
        f"{found[k]!r} there and {names[k]!r} here; make the module with the {kind} in "
        "the order of the checkpoint"
    )
