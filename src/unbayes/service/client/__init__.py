"""A client of the service, with the verbs of the ledger; it needs httpx and nothing else of the service."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
