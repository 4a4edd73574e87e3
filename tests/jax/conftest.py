"""Double precision for the tests that need the digits of float64."""

import pytest


@pytest.fixture
def double():
    """Let JAX compute in float64, also in the threads that call back."""
    import jax

    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)
