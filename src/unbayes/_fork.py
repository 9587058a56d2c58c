"""Forked processes, in which JAX hangs if it had computed before: they are told so."""

import os
import sys

_inherited_backend = False


def require_usable_process() -> None:
    """Refuse to compute in a process that was forked after JAX had begun to compute.

    JAX's threads do not live on in it, and what waits for them would wait forever.
    """
    if _inherited_backend:
        raise RuntimeError(
            "unbayes cannot be used in this process, which was forked from one in which JAX had already "
            'computed, and would hang: start processes by multiprocessing\'s "spawn" or "forkserver", or by '
            "joblib's default backend, loky"
        )


def _look_back() -> None:
    """Note, in a new process, whether JAX had computed in the one it was forked from."""
    global _inherited_backend
    # Not imported here: where nobody else has, JAX has not computed. Nor does this ask JAX's own function,
    # which takes a lock that a thread of the other process may have held.
    _inherited_backend = bool(getattr(sys.modules.get("jax._src.xla_bridge"), "_backends", None))


if hasattr(os, "register_at_fork"):  # Windows knows no fork.
    os.register_at_fork(after_in_child=_look_back)
