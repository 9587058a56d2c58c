import itertools
import os
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Most of the time goes into compiling, so the compiler is asked for less than a user gets: programs are
# optimised less, hardly at all where a test file does not say OPTIMISED. They are kept for all workers, the
# processes that tests start, and the next run.
KEEPING = {
    "jax_compilation_cache_dir": str(Path(__file__).parents[1] / ".pytest_cache" / "programs"),
    "jax_persistent_cache_min_compile_time_secs": 0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=1 --xla_cpu_parallel_codegen_split_count=1"
)
for setting, value in KEEPING.items():
    os.environ[setting.upper()] = str(value)
    jax.config.update(setting, value)

MAPS = Path("/proc/self/maps")
# Linux allows a process 65,530 memory maps unless told otherwise; every compiled program takes some.
MOST_MAPS = 30_000
# Tests between two looks at them, which take a while where there are many.
BETWEEN_LOOKS = 4
looks = itertools.count()


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Run a test in both floating-point types, each as JAX's default."""
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)


@pytest.fixture(autouse=True, scope="module")
def quick_compilation(request):
    """Compile in a hurry what does not run for long."""
    jax.config.update("jax_disable_most_optimizations", not getattr(request.module, "OPTIMISED", False))


@pytest.fixture(autouse=True)
def room_for_programs():
    """Forget compiled programs before there are more of them than a process may hold.

    Within a file, too: scikit-learn's own checks alone compile some thousands.
    """
    yield
    if next(looks) % BETWEEN_LOOKS == 0 and MAPS.exists() and MAPS.read_text().count("\n") > MOST_MAPS:
        jax.clear_caches()


@pytest.fixture
def text(tmp_path):
    """Write a table as it stands."""

    def write(content, name="rows.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
