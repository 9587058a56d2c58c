import jax
import jax.numpy as jnp
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Run a test in both floating-point types, each as JAX's default."""
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)
