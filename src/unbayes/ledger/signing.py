"""Ed25519 keys: what the ledger signs with, and what others check that with."""

import dataclasses
import hashlib
from typing import Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from unbayes.ledger.errors import BadSignature

# Hexadecimal digits of a key's digest that name it: 64 bits, short enough to be compared by eye.
KEY_ID_DIGITS = 16


@dataclasses.dataclass(frozen=True)
class PublicKey:
    """Checks signatures.

    Attributes
    ----------
    raw
        The 32 bytes of the key.
    """

    raw: bytes

    @classmethod
    def from_pem(cls, pem: bytes) -> Self:
        """Read a key from the text form that `to_pem` gives; `BadSignature` where it is not one."""
        try:
            key = serialization.load_pem_public_key(pem)
        except (ValueError, UnsupportedAlgorithm):
            raise BadSignature("this is not a public key in PEM form") from None
        if not isinstance(key, Ed25519PublicKey):
            raise BadSignature(f"this public key is a {type(key).__name__}, not an Ed25519 key")
        return cls(key.public_bytes_raw())

    def to_pem(self) -> bytes:
        """The key in text form, to be published."""
        return self._key.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )

    @property
    def key_id(self) -> str:
        """A short name: the first 16 hexadecimal digits of SHA-256 of its DER SubjectPublicKeyInfo."""
        der = self._key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return hashlib.sha256(der).hexdigest()[:KEY_ID_DIGITS]

    def require_signed(self, signature: bytes, data: bytes) -> None:
        """Refuse, by `BadSignature`, what is not this key's signature over these bytes."""
        try:
            self._key.verify(signature, data)
        except InvalidSignature:
            raise BadSignature(f"the signature is not by the key {self.key_id} over this content") from None

    @property
    def _key(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.raw)


@dataclasses.dataclass(frozen=True)
class SigningKey:
    """Signs. It is secret: whoever has it can sign in the ledger's name."""

    _secret: Ed25519PrivateKey = dataclasses.field(repr=False)

    @classmethod
    def generate(cls) -> Self:
        """A new key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def from_pem(cls, pem: bytes) -> Self:
        """Read a key from the text form that `to_pem` gives; `BadSignature` where it is not one."""
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        # A TypeError says that the key is protected by a password.
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise BadSignature("this is not a signing key in PEM form without a password") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise BadSignature(f"this signing key is a {type(key).__name__}, not an Ed25519 key")
        return cls(key)

    def to_pem(self) -> bytes:
        """The key in text form (PKCS8), unprotected: encrypt it, or write it where nobody else may read."""
        return self._secret.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )

    @property
    def public(self) -> PublicKey:
        """The key that checks what this one signs."""
        return PublicKey(self._secret.public_key().public_bytes_raw())

    @property
    def key_id(self) -> str:
        """The short name of its public key."""
        return self.public.key_id

    def sign(self, data: bytes) -> bytes:
        """Signature, of 64 bytes, over these bytes."""
        return self._secret.sign(data)
