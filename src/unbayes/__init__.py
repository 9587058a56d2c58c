"""Take data back out of a trained Bayesian model.

Names are imported when they are first used; `__init__.pyi` lists them and where they live.
"""

import gc as _gc

import lazy_loader as _lazy_loader

# Before any process is forked.
import unbayes._fork as _fork  # noqa: F401

_import, __dir__, __all__ = _lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str):
    """Import a public name; collecting garbage meanwhile finds none and takes a fifth of the time."""
    was_enabled = _gc.isenabled()
    _gc.disable()
    try:
        return _import(name)
    finally:
        if was_enabled:
            _gc.enable()
