"""A ledger of models and erasure requests, with a log and reports that somebody else can check.

Names are imported when first used: checking a report needs neither a database nor JAX.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
