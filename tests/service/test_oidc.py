"""Tokens of an issuer of identities: a real one, on this machine's loopback, with keys made here."""

import base64
import contextlib
import hashlib
import hmac
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from ledger.setting import Clock
from service.serving import serving
from unbayes.ledger import Ledger, LedgerError
from unbayes.service import ServiceSettings, oidc
from unbayes.service.settings import OIDC

AUDIENCE = "unbayes"


class Issuer:
    """What an issuer of identities answers, and the tokens that it makes."""

    def __init__(self):
        self.rsa = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.keys = {"r": self.rsa, "e": self.ec}
        self.asked, self.name, self.is_down = [], None, False
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                issuer.asked.append(self.path)
                documents = {
                    "/.well-known/openid-configuration": issuer.discovery,
                    "/keys": issuer.jwks,
                }
                found = documents.get(self.path)
                self.send_response(500 if issuer.is_down or found is None else 200)
                self.end_headers()
                if found is not None:
                    self.wfile.write(json.dumps(found()).encode())

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def discovery(self):
        return {"issuer": self.name or self.address, "jwks_uri": f"{self.address}/keys"}

    def jwks(self):
        return {"keys": [self.jwk(name, key) for name, key in self.keys.items()] + [{"kty": "odd"}]}

    def jwk(self, name, key):
        kind = (
            jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
        )
        return json.loads(kind.to_jwk(key.public_key())) | {"kid": name, "use": "sig"}

    def claims(self, **more):
        now = int(time.time())
        claims = {"iss": self.address, "aud": AUDIENCE, "sub": "ann", "iat": now, "exp": now + 60}
        claims |= {"roles": ["unbayes:audit", "unbayes:submit", "admin", "audit"]} | more
        return {name: value for name, value in claims.items() if value is not None}

    def token(self, key="r", algorithm=None, signing=None, headers=None, **claims):
        signing = signing or self.keys.get(key, self.rsa)
        algorithm = algorithm or ("ES256" if isinstance(signing, ec.EllipticCurvePrivateKey) else "RS256")
        return jwt.encode(self.claims(**claims), signing, algorithm, {"kid": key} | (headers or {}))


@pytest.fixture(scope="module")
def issuer():
    issuer = Issuer()
    thread = threading.Thread(target=issuer.server.serve_forever, daemon=True)
    thread.start()
    yield issuer
    issuer.server.shutdown()
    issuer.server.server_close()


@pytest.fixture(scope="module")
def ledger(tmp_path_factory):
    with Ledger.create(tmp_path_factory.mktemp("oidc") / "ledger", clock=Clock()) as ledger:
        yield ledger


@contextlib.contextmanager
def trusting(ledger, issuer, **more):
    settings = ServiceSettings(oidc=OIDC(issuer.address, AUDIENCE, leeway=5, **more))
    with serving(ledger, settings) as address:
        yield address


@pytest.fixture(scope="module")
def address(ledger, issuer):
    with trusting(ledger, issuer) as address:
        yield address


def ask(address, token, path="/v1/log"):
    return httpx.get(address + path, headers={"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize("key", ["r", "e"])
def test_a_token_of_the_issuer_is_accepted(address, issuer, key):
    assert ask(address, issuer.token(key)).status_code == 200


def test_roles_are_scopes_with_their_prefix(address, issuer):
    """Somebody who is an admin elsewhere is none here."""
    assert ask(address, issuer.token(), "/v1/tokens").status_code == 403
    assert ask(address, issuer.token(roles=["unbayes:admin"]), "/v1/tokens").status_code == 200
    assert ask(address, issuer.token(roles="unbayes:admin other"), "/v1/tokens").status_code == 200
    for roles in (None, [], {}, 7, [7], ["unbayes:"], "unbayes:none", ["UNBAYES:ADMIN"]):
        assert ask(address, issuer.token(roles=roles), "/v1/tokens").status_code == 403


def test_roles_may_stand_deeper(ledger, issuer):
    with trusting(ledger, issuer, roles_claim="realm_access.roles") as address:
        inside = issuer.token(roles=None, realm_access={"roles": ["unbayes:audit"]})
        assert ask(address, inside).status_code == 200
        assert ask(address, issuer.token()).status_code == 403
        assert ask(address, issuer.token(realm_access=["unbayes:audit"])).status_code == 403


def encoded(value):
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def by_hand(issuer, header, secret=None):
    """A token that no library would make."""
    parts = encoded(json.dumps(header).encode()) + "." + encoded(json.dumps(issuer.claims()).encode())
    signature = b"" if secret is None else hmac.new(secret, parts.encode(), hashlib.sha256).digest()
    return f"{parts}.{encoded(signature)}"


def changed(token, claims):
    head, _, signature = token.split(".")
    return ".".join([head, encoded(json.dumps(claims).encode()), signature])


def public_pem(issuer):
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return issuer.rsa.public_key().public_bytes(serialization.Encoding.PEM, form)


FORGED = {
    "expired": lambda issuer: issuer.token(exp=int(time.time()) - 60),
    "not yet": lambda issuer: issuer.token(nbf=int(time.time()) + 60),
    "for somebody else": lambda issuer: issuer.token(aud="other"),
    "for nobody": lambda issuer: issuer.token(aud=None),
    "of another issuer": lambda issuer: issuer.token(iss="https://elsewhere.example"),
    "of nobody": lambda issuer: issuer.token(iss=None),
    "for ever": lambda issuer: issuer.token(exp=None),
    "without a person": lambda issuer: issuer.token(sub=None),
    "without a time": lambda issuer: issuer.token(iat=None),
    "by another key": lambda issuer: issuer.token(signing=issuer.other),
    "by a key that is not known": lambda issuer: issuer.token("x", signing=issuer.other),
    "without a name of a key": lambda issuer: issuer.token(headers={"kid": ""}),
    "alg none": lambda issuer: by_hand(issuer, {"alg": "none", "kid": "r"}),
    "alg None": lambda issuer: by_hand(issuer, {"alg": "None", "kid": "r"}),
    "no alg": lambda issuer: by_hand(issuer, {"kid": "r"}),
    "HS256 by the public key": lambda issuer: by_hand(
        issuer, {"alg": "HS256", "kid": "r", "typ": "JWT"}, public_pem(issuer)
    ),
    "HS256 by nothing": lambda issuer: by_hand(issuer, {"alg": "HS256", "kid": "r"}, b""),
    "RS512": lambda issuer: issuer.token(algorithm="RS512"),
    "PS256": lambda issuer: issuer.token(algorithm="PS256"),
    "RS256 named as the other key": lambda issuer: issuer.token("e", signing=issuer.rsa),
    "a changed claim": lambda issuer: changed(issuer.token(), issuer.claims(sub="eve")),
    "no signature": lambda issuer: issuer.token().rpartition(".")[0] + ".",
    "too long": lambda issuer: issuer.token(more="x" * 40_000)[:60_000],
    "nonsense": lambda _: "a.b.c",
    "too deep": lambda _: base64.urlsafe_b64encode(b"[" * 12_000).rstrip(b"=").decode() + ".e30.e30",
    "a key inside": lambda issuer: issuer.token(
        signing=issuer.other, headers={"jwk": issuer.jwk("r", issuer.other)}
    ),
    "a key elsewhere": lambda issuer: issuer.token(
        signing=issuer.other, headers={"jku": "http://127.0.0.1:1/keys"}
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FORGED)
def test_a_forged_token_is_refused(address, issuer, case):
    answer = ask(address, FORGED[case](issuer))
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert ask(address, issuer.token()).status_code == 200


def test_clocks_may_differ_a_little(address, issuer):
    now = int(time.time())
    assert ask(address, issuer.token(exp=now - 2)).status_code == 200
    assert ask(address, issuer.token(exp=now - 10)).status_code == 401
    assert ask(address, issuer.token(nbf=now + 2)).status_code == 200


def test_the_bearer_is_the_client_of_their_requests():
    assert oidc._name({"sub": "ann"}) == "oidc:ann"
    long = oidc._name({"sub": "x" * 255})
    assert len(long) <= oidc.LONGEST_NAME
    assert long != oidc._name({"sub": "x" * 254})
    assert oidc._name({"sub": "a\nb"}).isprintable()


def test_keys_are_asked_for_once_and_again_when_they_change(ledger, issuer, monkeypatch):
    with trusting(ledger, issuer) as address:
        issuer.asked.clear()
        for _ in range(5):
            assert ask(address, issuer.token()).status_code == 200
        assert issuer.asked == ["/.well-known/openid-configuration", "/keys"]
        issuer.keys["new"] = issuer.other
        try:
            # Nobody can make the service ask the issuer all the time.
            for _ in range(3):
                assert ask(address, issuer.token("new")).status_code == 401
            assert len(issuer.asked) == 2
            monkeypatch.setattr(oidc, "AGAIN_SECONDS", 0.0)
            assert ask(address, issuer.token("new")).status_code == 200
            assert len(issuer.asked) == 4
        finally:
            del issuer.keys["new"]


def test_an_issuer_that_does_not_answer(ledger, issuer, monkeypatch):
    monkeypatch.setattr(oidc, "AGAIN_SECONDS", 0.0)
    with trusting(ledger, issuer) as address:
        issuer.is_down = True
        try:
            answer = ask(address, issuer.token())
            assert answer.status_code == 503
            assert "retry-after" in answer.headers
            # Tokens of the ledger are known all the same.
            assert ask(address, ledger.tokens.create("a", ["audit"])[1]).status_code == 200
        finally:
            issuer.is_down = False
        assert ask(address, issuer.token()).status_code == 200
        # Keys that are known are good for as long as it does not answer.
        monkeypatch.setattr(oidc, "KEPT_SECONDS", -1.0)
        issuer.is_down = True
        try:
            assert ask(address, issuer.token()).status_code == 200
        finally:
            issuer.is_down = False


def test_a_document_of_another_issuer_is_not_believed(ledger, issuer):
    issuer.name = "https://elsewhere.example"
    try:
        with trusting(ledger, issuer) as address:
            assert ask(address, issuer.token()).status_code == 503
    finally:
        issuer.name = None


def test_without_an_issuer_its_tokens_are_none(ledger, issuer):
    with serving(ledger) as address:
        assert ask(address, issuer.token()).status_code == 401


@pytest.mark.parametrize(
    "where", ["http://issuer.example", "issuer.example", "ftp://x", "http://localhost.evil", "https://"]
)
def test_an_issuer_has_an_address_with_https(where):
    with pytest.raises(LedgerError, match="https"):
        OIDC(where, "x")
    with pytest.raises(LedgerError, match="audience"):
        OIDC("https://issuer.example", "")
