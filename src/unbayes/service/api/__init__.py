"""The routes that programs call: a file for each kind of thing."""

from fastapi import APIRouter


def routers() -> list[APIRouter]:
    """All of them."""
    from unbayes.service.api import health, hooks, log, models, requests, statistics, submitting, tokens

    kinds = (health, models, submitting, requests, log, statistics, tokens, hooks)
    return [kind.router for kind in kinds]
