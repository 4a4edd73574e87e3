"""Fixtures for all tests."""

import os
import pathlib

import pytest

SHARED = pathlib.Path(
    os.environ.get("FSTGRAD_DATA", pathlib.Path(__file__).parent.parent.parent / "shared" / "data")
)


@pytest.fixture(scope="session")
def shared_data():
    """The folder of reference data that lies beside the project; skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"no reference data in {SHARED}")
    return SHARED
