"""Tokens of an issuer of identities (OpenID Connect): whether they are meant for us, and what for."""

import hashlib
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import httpx
import jwt

from unbayes.ledger.tokens import Scope
from unbayes.service.problems import Problem
from unbayes.service.settings import OIDC

# The algorithm that goes with a kind of key; a token that names another one is refused.
ALGORITHMS = {("RSA", None): "RS256", ("EC", "P-256"): "ES256"}
DISCOVERY = "/.well-known/openid-configuration"
REQUIRED = ["exp", "iat", "iss", "aud", "sub"]
# Keys are asked for again after an hour; at once where a token names one that is not known, but not more
# often than this.
KEPT_SECONDS, AGAIN_SECONDS = 3600.0, 30.0
PATIENCE, LONGEST_ANSWER = 5.0, 2**20
LONGEST_TOKEN = 16 * 1024
LONGEST_NAME = 90
NAME_PREFIX = "oidc:"


class Refusal(Exception):
    """A token is not accepted."""


class Identities:
    """Who the bearers of an issuer's tokens are."""

    def __init__(self, settings: OIDC):
        self._settings, self._lock = settings, threading.Lock()
        self._keys: dict[str, tuple[str, Any]] = {}
        self._asked, self._tried = -KEPT_SECONDS, -KEPT_SECONDS

    def find(self, shown: str) -> tuple[str, frozenset[Scope]]:
        """Name and scopes of a token's bearer; `Refusal` where it is not valid."""
        if len(shown) > LONGEST_TOKEN:
            raise Refusal("the token is too long")
        try:
            algorithm, key = self._key(jwt.get_unverified_header(shown))
            claims = jwt.decode(
                shown,
                key,
                algorithms=[algorithm],
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=self._settings.leeway,
                options={"require": REQUIRED},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise Refusal("the token is not valid") from error
        return _name(claims), self._scopes(claims)

    def _scopes(self, claims: Mapping[str, Any]) -> frozenset[Scope]:
        found: Any = claims
        for part in self._settings.roles_claim.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if isinstance(found, str):
            found = found.split()
        roles = {role for role in found if isinstance(role, str)} if isinstance(found, list) else set()
        return frozenset(scope for scope in Scope if self._settings.prefix + scope in roles)

    def _key(self, header: Mapping[str, Any]) -> tuple[str, Any]:
        """The algorithm and the key that a token has to be signed by."""
        name = header.get("kid")
        if not isinstance(name, str):
            raise Refusal("the token does not say by which key it is signed")
        with self._lock:
            now = time.monotonic()
            is_old = now - self._asked > KEPT_SECONDS
            if (is_old or name not in self._keys) and now - self._tried > AGAIN_SECONDS:
                self._tried = now
                self._keys, self._asked = self._ask(), now
            if not self._keys:
                raise _silence()
            if name not in self._keys:
                raise Refusal("the token is signed by a key that the issuer does not have")
            algorithm, key = self._keys[name]
        if header.get("alg") != algorithm:
            raise Refusal("the token is signed in a way that is not accepted")
        return algorithm, key

    def _ask(self) -> dict[str, tuple[str, Any]]:
        """The keys that the issuer has now, by their names."""
        try:
            with httpx.Client(timeout=PATIENCE, trust_env=False) as client:
                found = _json(client, self._settings.issuer.rstrip("/") + DISCOVERY)
                if found.get("issuer") != self._settings.issuer:
                    raise ValueError("the discovery document is of another issuer")
                address = found["jwks_uri"]
                if not address.startswith("https://") and self._settings.issuer.startswith("https://"):
                    raise ValueError("the issuer's keys are not at an address with https")
                listed = _json(client, address)["keys"]
            return dict(pair for each in listed if (pair := _read_key(each)) is not None)
        except (httpx.HTTPError, ValueError, KeyError, TypeError, AttributeError) as error:
            if self._keys:
                return self._keys
            raise _silence() from error


def _silence() -> Problem:
    sentence = "the issuer of identities does not answer as it should; try again later"
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, sentence, {"Retry-After": "30"})


def _json(client: httpx.Client, address: str) -> dict[str, Any]:
    with client.stream("GET", address) as answer:
        answer.raise_for_status()
        data = b""
        for part in answer.iter_bytes():
            data += part
            if len(data) > LONGEST_ANSWER:
                raise ValueError("the issuer's answer is too long")
    found = httpx.Response(200, content=data).json()
    if not isinstance(found, dict):
        raise ValueError("the issuer's answer is no object")
    return found


def _read_key(value: Any) -> tuple[str, tuple[str, Any]] | None:
    """Name, algorithm and key; None for one that nothing is signed by that we accept."""
    algorithm = ALGORITHMS.get((value.get("kty"), value.get("crv")))
    if algorithm is None or not isinstance(value.get("kid"), str) or value.get("use", "sig") != "sig":
        return None
    try:
        return value["kid"], (algorithm, jwt.PyJWK(value, algorithm).key)
    except jwt.PyJWTError:
        return None


def _name(claims: Mapping[str, Any]) -> str:
    """What a bearer is called: what the issuer calls them, or a digest of that where it is too long."""
    name = NAME_PREFIX + claims["sub"]
    if len(name) <= LONGEST_NAME and name.isprintable():
        return name
    return NAME_PREFIX + hashlib.sha256(claims["sub"].encode(errors="replace")).hexdigest()
