"""Compiled programs, kept across processes so that a later one need not compile them again.

JAX has one folder for kept programs, and by itself would write every program of the process there: those of a
user's own training loop too, which often hold the training data as constants. Here programs are written only
within the library's own calls, in which records are always arguments, and never those of a model with
functions of the user's, which may close over anything.
"""

import contextlib
import contextvars
import functools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
from jax._src.config import persistent_cache_min_compile_time_secs as _least_compile_time

from unbayes._fork import require_usable_process

# Names a folder, or is "off".
SETTING = "UNBAYES_CACHE"
# Seconds that no compilation takes: programs are read from the folder, and none is written to it.
NEVER = 1e9
# Of the compiler, for programs that take longer to compile than to run: half the time, and half the speed.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

Function = TypeVar("Function", bound=Callable[..., Any])
_quickly = contextvars.ContextVar("quickly", default=False)


def keep_programs(folder: str | os.PathLike[str] | None) -> None:
    """Keep compiled programs of the library's calls in a folder, where later processes find them.

    Importing unbayes does this with a folder in the user's cache, unless the environment variable
    `UNBAYES_CACHE` names another or is "off", or JAX's own `jax_compilation_cache_dir` is set, which then
    rules. Programs hold no records. Those of models with functions of your own are not kept.

    Parameters
    ----------
    folder
        Where to; None keeps none.
    """
    jax.config.update("jax_compilation_cache_dir", None if folder is None else os.fspath(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", NEVER)


@contextlib.contextmanager
def kept(holds_functions: bool) -> Iterator[None]:
    """Write programs that are compiled within this context, unless a model `holds_functions` of a user's.

    All calls of the library pass here; a process in which they would hang is refused.
    """
    require_usable_process()
    is_ours = _setting("jax_persistent_cache_min_compile_time_secs") == NEVER
    with _least_compile_time(0.0) if is_ours and not holds_functions else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def quickly(wish: bool) -> Iterator[None]:
    """Compile `compiled` functions quickly rather than well, within this context, if that is the wish.

    For models with functions of a user's, whose programs no other process finds, and few records.
    """
    token = _quickly.set(wish)
    try:
        yield
    finally:
        _quickly.reset(token)


def compiled(function: Function) -> Function:
    """As `equinox.filter_jit`, for functions that may be called within `quickly`."""
    # Equinox hands options on to JAX, which its annotations do not say.
    jit: Any = eqx.filter_jit
    well, quick = jit(function), jit(function, compiler_options=QUICK)

    @functools.wraps(function)
    def call(*args, **kwargs):
        return (quick if _quickly.get() else well)(*args, **kwargs)

    return cast(Function, call)


def keep_by_default() -> None:
    """Keep programs as the environment says, unless JAX was told already."""
    wish = os.environ.get(SETTING, "")
    if wish.lower() == "off" or _setting("jax_compilation_cache_dir") is not None:
        return
    try:
        folder = Path(wish) if wish else _user_cache() / "unbayes" / "programs"
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return  # No home, or one that cannot be written to: every process compiles for itself.
    keep_programs(folder)


def _user_cache() -> Path:
    """The user's cache folder, by the custom of the operating system."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))


def _setting(name: str) -> Any:
    return getattr(jax.config, name)
