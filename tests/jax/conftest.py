"""Double precision for the tests that need the digits of float64."""

import pytest


@pytest.fixture
def double():
    """Let JAX compute in float64."""
    import jax

    with jax.enable_x64(True):
        yield
