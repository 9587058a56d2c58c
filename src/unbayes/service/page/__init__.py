"""The page for people: a privacy team, an auditor, an operator. Templates, one style, and a vendored htmx.

It calls the ledger, and nothing of the routes under `/v1`.
"""

from fastapi import APIRouter


def routers() -> list[APIRouter]:
    """All of its routes."""
    from unbayes.service.page import deciding, entrance, log, models, overview, reports, requests, submitting

    # Those of fixed addresses come before those that take a number or a name from theirs.
    kinds = (entrance, overview, models, submitting, requests, deciding, reports, log)
    return [kind.router for kind in kinds]
