from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

MAPS = Path("/proc/self/maps")
# Linux allows a process 65,530 memory maps unless told otherwise; every compiled program takes some.
MOST_MAPS = 30_000


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Run a test in both floating-point types, each as JAX's default."""
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)


@pytest.fixture(autouse=True, scope="module")
def room_for_programs():
    """Forget compiled programs before there are more of them than a process may hold."""
    yield
    if MAPS.exists() and MAPS.read_text().count("\n") > MOST_MAPS:
        jax.clear_caches()
