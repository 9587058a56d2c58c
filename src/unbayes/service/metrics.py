"""What Prometheus reads: calls, and how the requests stand."""

import datetime
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from unbayes.ledger import Ledger, RequestState

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0)


class Metrics:
    """The numbers of one application, in a registry of its own."""

    def __init__(self, ledger: Ledger):
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Requests(ledger))
        self._calls = Counter(
            "unbayes_http_requests_total", "Calls.", ["method", "route", "status"], registry=self._registry
        )
        self._seconds = Histogram(
            "unbayes_http_request_seconds",
            "Seconds from a call to its answer.",
            ["route"],
            buckets=SECONDS,
            registry=self._registry,
        )

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a call, by the template of its route."""
        self._calls.labels(method, route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self) -> bytes:
        """As Prometheus reads them."""
        return generate_latest(self._registry)


class _Requests(Collector):
    """How the requests stand when somebody asks."""

    def __init__(self, ledger: Ledger):
        self._ledger = ledger

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Read the ledger."""
        counts = self._ledger.number_by_state()
        states = GaugeMetricFamily("unbayes_requests", "Erasure requests.", labels=["state"])
        for state in RequestState:
            states.add_metric([state], counts.get(state, 0))
        yield states
        yield GaugeMetricFamily(
            "unbayes_requests_overdue", "Requests that should have been answered.", self._ledger.overdue()
        )
        if (due := self._ledger.next_due()) is not None:
            days = (due - self._ledger.today).days
            yield GaugeMetricFamily("unbayes_next_due_days", "Days until the next request is due.", days)
        made = GaugeMetricFamily(
            "unbayes_model_version_created_seconds", "When the current version was made.", labels=["model"]
        )
        number = GaugeMetricFamily("unbayes_model_version", "Number of the version.", labels=["model"])
        for model in self._ledger.models():
            version = self._ledger.current(model.name)
            when = datetime.datetime.fromisoformat(version.created)
            made.add_metric([model.name], when.timestamp())
            number.add_metric([model.name], version.number)
        yield made
        yield number
