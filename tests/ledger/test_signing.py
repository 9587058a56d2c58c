import hashlib
import subprocess

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from unbayes.ledger.errors import BadSignature, LedgerError
from unbayes.ledger.signing import PublicKey, SigningKey

# RFC 8032, section 7.1, test 2.
SEED = bytes.fromhex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb")
RAW = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
SIGNATURE = bytes.fromhex(
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)
# What stands before the 32 bytes of an Ed25519 key in a SubjectPublicKeyInfo (RFC 8410).
DER_PREFIX = bytes.fromhex("302a300506032b6570032100")


@pytest.fixture
def key():
    return SigningKey(Ed25519PrivateKey.from_private_bytes(SEED))


def test_the_published_signature(key):
    assert key.public.raw == RAW
    assert key.sign(b"\x72") == SIGNATURE
    key.public.require_signed(SIGNATURE, b"\x72")


def test_the_key_id_is_the_digest_of_the_public_key(key):
    expected = hashlib.sha256(DER_PREFIX + RAW).hexdigest()[:16]
    assert key.key_id == key.public.key_id == expected


def test_keys_come_back_from_pem(key):
    again = SigningKey.from_pem(key.to_pem())
    assert again.sign(b"\x72") == SIGNATURE
    assert PublicKey.from_pem(key.public.to_pem()) == key.public
    assert key.to_pem().startswith(b"-----BEGIN PRIVATE KEY-----\n")


def test_other_programs_read_the_keys(key, tmp_path):
    path = tmp_path / "key.pem"
    path.write_bytes(key.to_pem())
    try:
        found = subprocess.run(["openssl", "pkey", "-in", path, "-pubout"], capture_output=True, check=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl here")
    assert found.stdout == key.public.to_pem()


def test_every_flipped_bit_is_refused(key):
    for bit in range(8 * len(SIGNATURE)):
        wrong = bytearray(SIGNATURE)
        wrong[bit // 8] ^= 1 << bit % 8
        with pytest.raises(BadSignature, match=key.key_id):
            key.public.require_signed(bytes(wrong), b"\x72")
    for signature in (b"", SIGNATURE[:-1], SIGNATURE + b"\x00"):
        with pytest.raises(BadSignature):
            key.public.require_signed(signature, b"\x72")
    with pytest.raises(BadSignature):
        key.public.require_signed(SIGNATURE, b"\x73")
    with pytest.raises(BadSignature):
        SigningKey.generate().public.require_signed(SIGNATURE, b"\x72")


def test_other_files_are_refused(key):
    other = generate_private_key(SECP256R1())
    secret = other.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    public = other.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    protected = key._secret.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    for pem in (b"", b"hello", secret, protected, key.public.to_pem()):
        with pytest.raises(BadSignature, match="signing key"):
            SigningKey.from_pem(pem)
    for pem in (b"", b"hello", public, key.to_pem()):
        with pytest.raises(BadSignature, match="public key"):
            PublicKey.from_pem(pem)


def test_a_secret_is_not_shown(key):
    assert SEED.hex() not in repr(key)
    assert "object at" not in repr(key)


def test_errors_are_value_errors():
    assert issubclass(BadSignature, LedgerError)
    assert issubclass(LedgerError, ValueError)
