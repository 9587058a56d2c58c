"""Calls that schemathesis makes up from the OpenAPI document, good and bad, at a real server."""

import collections
import contextlib
import dataclasses
import json
import random
import time

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi import checks

# Not positive_data_acceptance: a schema cannot say that lists go together, that a day is to come, or what
# state a request is in. Neither what looks at several calls, nor at tokens, which is done elsewhere.
CHECKS = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.missing_required_header,
    checks.unsupported_method,
]


@dataclasses.dataclass
class Found:
    """What came of the calls."""

    statuses: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    operations: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    failures: dict[str, str] = dataclasses.field(default_factory=dict)

    @property
    def calls(self):
        """How many there were."""
        return sum(self.statuses.values())

    @property
    def server_errors(self):
        """How many were answered as nobody should be."""
        return sum(number for status, number in self.statuses.items() if status >= 500)


class Session(requests.Session):
    """Has a token that is good again after it was revoked, which is among the things that calls do."""

    def __init__(self, new_token, found):
        super().__init__()
        self._new_token, self._found = new_token, found
        self.renew()

    def renew(self):
        self.headers["Authorization"] = f"Bearer {self._new_token()}"

    def request(self, *arguments, **options):
        answer = super().request(*arguments, **options)
        self._found.statuses[answer.status_code] += 1
        if (
            answer.status_code == 401
            and requests.get(f"{self.base}/v1/log/key", headers=dict(self.headers), timeout=30).status_code
            == 401
        ):
            self.renew()
            answer = super().request(*arguments, **options)
            self._found.statuses[answer.status_code] += 1
        return answer


def fuzz(address, new_token, document, calls, *, start=0, seconds=float("inf"), known=None):
    """Make so many calls, evenly over the operations and the ways to make them up.

    Parameters
    ----------
    address, document
        Of the service.
    new_token
        Makes a token with all scopes.
    calls
        How many; some more are made by checks.
    start
        Of the random numbers.
    seconds
        After which no new round begins.
    known
        Parameters of paths that lead to something.
    """
    schema = schemathesis.openapi.from_dict(_without_security(document))
    found, end = Found(), time.monotonic() + seconds
    session = Session(new_token, found)
    session.base = address
    operations = [result.ok() for result in schema.get_all_operations()]
    ways = [
        (operation, mode, is_known)
        for operation in operations
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        for is_known in (False, True)
        if not is_known or "{" in operation.path
        if mode is GenerationMode.POSITIVE or _has_arguments(operation)
    ]
    number = 0
    while found.calls < calls and time.monotonic() < end:
        random.Random(start + number).shuffle(ways)
        left = calls - found.calls
        examples = max(1, min(25, -(-left // len(ways))))
        for operation, mode, is_known in ways:
            number += 1
            if time.monotonic() > end:
                break
            _one_way(
                operation, mode, known or {} if is_known else {}, examples, start + number, session, found
            )
    return found


def _without_security(document):
    """The document for somebody whose every call has a token; calls without one are another test's."""
    document = json.loads(json.dumps(document))
    for operations in document["paths"].values():
        for operation in operations.values():
            operation.pop("security", None)
    document["components"].pop("securitySchemes")
    return document


def _has_arguments(operation):
    """Whether there is something that can be wrong."""
    return bool(list(operation.iter_parameters()) or operation.body)


def _one_way(operation, mode, known, examples, start, session, found):
    names = {name: value for name, value in known.items() if f"{{{name}}}" in operation.path}
    fixed = {"path_parameters": names} if names else {}
    strategy = operation.as_strategy(generation_mode=mode, **fixed)

    @seed(start)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def run(case):
        answer = case.call(base_url=session.base, session=session, timeout=60)
        found.operations[operation.label] += 1
        try:
            case.validate_response(answer, checks=CHECKS, transport_kwargs={"session": session})
        except FailureGroup as group:
            for each in group.exceptions:
                what = f"{operation.label}: {type(each).__name__}"
                found.failures.setdefault(
                    what, f"{each}\n{case.as_curl_command()[:1000]}\n{answer.content[:300]}"
                )

    with contextlib.suppress(Unsatisfiable):
        # Where nothing is declared, nothing can be wrong.
        run()
