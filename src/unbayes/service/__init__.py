"""The ledger over HTTP: for a privacy team, applications and auditors, with a page for people.

It calls the ledger and nothing below it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
