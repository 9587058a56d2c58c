"""The routes that programs call: a file for each kind of thing."""

from fastapi import APIRouter


def routers() -> list[APIRouter]:
    """All of them."""
    from unbayes.service.api import health, log, models, requests, statistics, submitting, tokens

    kinds = (health, models, submitting, requests, log, statistics, tokens)
    return [kind.router for kind in kinds]
