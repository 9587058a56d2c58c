"""The application: routes over one ledger."""

from fastapi import FastAPI

from unbayes._version import __version__
from unbayes.ledger import Ledger
from unbayes.service.api import routers
from unbayes.service.problems import add_problems
from unbayes.service.settings import ServiceSettings


def create_app(ledger: Ledger, settings: ServiceSettings | None = None) -> FastAPI:
    """An ASGI application that serves a ledger; whoever opened the ledger closes it."""
    app = FastAPI(title="unbayes", version=__version__, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.ledger, app.state.settings = ledger, settings or ServiceSettings()
    add_problems(app)
    for router in routers():
        app.include_router(router)
    return app
