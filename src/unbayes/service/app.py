"""The application: routes over one ledger."""

import collections
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI

from unbayes._version import __version__
from unbayes.ledger import Ledger
from unbayes.service.api import routers
from unbayes.service.document import describe
from unbayes.service.limits import BodyLimit, Hosts, RateLimit, SecureHeaders
from unbayes.service.metrics import Metrics
from unbayes.service.observe import Observe
from unbayes.service.oidc import Identities
from unbayes.service.page import routers as page_routers
from unbayes.service.page.refusals import RefusalPages
from unbayes.service.problems import add_problems
from unbayes.service.settings import ServiceSettings
from unbayes.service.tables import TableReaders


def create_app(ledger: Ledger, settings: ServiceSettings | None = None, *, log: Any = None) -> FastAPI:
    """An ASGI application that serves a ledger; whoever opened the ledger closes it.

    Parameters
    ----------
    ledger
        What is served.
    settings
        What the operator chose.
    log
        Where calls are written down, such as `unbayes.service.logs.json_log()`; None for nowhere.
    """
    settings = settings or ServiceSettings()
    app = FastAPI(
        title="unbayes",
        summary="Erasure requests to trained Bayesian models",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
    )
    app.state.ledger, app.state.settings = ledger, settings
    app.state.identities = None if settings.oidc is None else Identities(settings.oidc)
    app.state.metrics, app.state.tables = Metrics(ledger), TableReaders(settings)
    # Progress that is being told, by the name of the caller.
    app.state.streams = collections.Counter()
    add_problems(app)
    for router in (*routers(), *page_routers()):
        # Flat, so that a call finds its route at once.
        app.router.routes.extend(router.routes)
    app.openapi = lambda: describe(app)
    # The last one is the outermost.
    app.add_middleware(RateLimit, settings=settings)
    app.add_middleware(Hosts, names=settings.hosts)
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(Observe, metrics=app.state.metrics, log=log)
    app.add_middleware(SecureHeaders, settings=settings)
    app.add_middleware(RefusalPages)
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Let go, at the end, of the processes that read tables."""
    yield
    app.state.tables.close()
