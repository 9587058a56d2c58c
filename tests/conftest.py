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
    "XLA_FLAGS",
    "--xla_backend_optimization_level=1 --xla_cpu_parallel_codegen_split_count=1"
    # The older way to make loops of fused operations: it takes half the time to compile.
    " --xla_cpu_use_fusion_emitters=false",
)
for setting, value in KEEPING.items():
    os.environ[setting.upper()] = str(value)
    jax.config.update(setting, value)

MAPS = Path("/proc/self/maps")
# Linux allows a process 65,530 memory maps unless told otherwise; a compiled program takes seven to thirty.
MOST_MAPS = 30_000
# Programs between two looks at them, which take a while where there are many.
BETWEEN_LOOKS = 50
# What JAX reports of every program, whether it was compiled or found in the folder above.
NEW_PROGRAM = "/jax/core/compile/backend_compile_duration"
new_programs = 0


def _count_programs(event, _seconds, **_):
    global new_programs
    new_programs += event == NEW_PROGRAM


jax.monitoring.register_event_duration_secs_listener(_count_programs)


def _make_room():
    """Forget compiled programs if there are more of them than is safe."""
    global new_programs
    new_programs = 0
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


def _make_room_if_due():
    if new_programs >= BETWEEN_LOOKS:
        _make_room()


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    """Run a test in both floating-point types, each as JAX's default."""
    with jax.enable_x64(request.param == "float64"):
        yield jnp.dtype(request.param)


@pytest.fixture(autouse=True, scope="module")
def quick_compilation(request):
    """Compile in a hurry what does not run for long."""
    jax.config.update("jax_disable_most_optimizations", not getattr(request.module, "OPTIMISED", False))


@pytest.fixture(autouse=True, scope="module")
def room_for_a_file():
    """Start every file with room, whatever JAX calls its reports."""
    _make_room()


@pytest.fixture(autouse=True)
def room_for_programs():
    """Forget compiled programs before there are more of them than a process may hold.

    After every test; one that compiles many hundreds calls this itself in between.
    """
    yield _make_room_if_due
    _make_room_if_due()


@pytest.fixture
def text(tmp_path):
    """Write a table as it stands."""

    def write(content, name="rows.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
