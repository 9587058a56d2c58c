"""The routes that programs call: a file for each kind of thing."""

from fastapi import APIRouter


def routers() -> list[APIRouter]:
    """All of them."""
    from unbayes.service.api import health

    return [health.router]
