"""Whether the service is there, and which it is: the only routes without a scope."""

from fastapi import APIRouter

from unbayes._version import __version__

router = APIRouter(tags=["service"])


@router.get("/health")
def health() -> dict[str, str]:
    """Whether the process answers."""
    return {"status": "fine"}


@router.get("/version")
def version() -> dict[str, str]:
    """Which version it is."""
    return {"version": __version__}
