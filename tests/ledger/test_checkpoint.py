import base64
import random

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from unbayes.ledger.checkpoint import Checkpoint, key_hash, read_checkpoint, signature_line
from unbayes.ledger.errors import BadSignature, LedgerError, TamperedLog
from unbayes.ledger.signing import SigningKey

KEY = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
CHECKPOINT = Checkpoint("unbayes.example/ledger", 1234, bytes(range(32)), "2026-11-18T09:30:00Z")
SIGNED = CHECKPOINT.signed(KEY)


def test_the_published_signed_note():
    """The example in the documentation of Go's package golang.org/x/mod/sumdb/note."""
    secret = base64.b64decode("AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz")
    key = SigningKey(Ed25519PrivateKey.from_private_bytes(secret[1:]))
    text = "If you think cryptography is the answer to your problem,\n"
    text += "then you don't know what your problem is.\n"
    assert key_hash("PeterNeumann", key.public).hex() == "c74f20a3"
    assert signature_line(text, "PeterNeumann", key) == (
        "— PeterNeumann "
        "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
    )


def test_the_text_by_hand():
    body, signatures = SIGNED.split("\n\n")
    assert body == (
        "unbayes.example/ledger\n1234\n"
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\ntime 2026-11-18T09:30:00Z"
    )
    assert signatures.startswith("— unbayes.example/ledger ")
    KEY.public.require_signed(base64.b64decode(signatures.split()[2])[4:], (body + "\n").encode())


@pytest.mark.parametrize("time", [None, "2026-11-18T09:30:00.123456Z"])
@pytest.mark.parametrize("size", [0, 1, 10**9])
def test_checkpoints_come_back(size, time):
    checkpoint = Checkpoint("ledger", size, bytes(32), time)
    assert read_checkpoint(checkpoint.signed(KEY), KEY.public) == checkpoint


def test_every_changed_byte_is_refused():
    data, chance = SIGNED.encode(), random.Random(0)
    for at in range(len(data)):
        for value in {data[at] ^ 1 << bit for bit in range(8)} | {chance.randrange(256)} - {data[at]}:
            changed = data[:at] + bytes([value]) + data[at + 1 :]
            with pytest.raises((BadSignature, TamperedLog, UnicodeDecodeError)):
                read_checkpoint(changed.decode(), KEY.public)


def test_another_key_is_refused():
    with pytest.raises(BadSignature, match="not signed by the key"):
        read_checkpoint(SIGNED, SigningKey.generate().public)


def test_a_witness_may_sign_below():
    witness = signature_line(CHECKPOINT.text, "witness.example", SigningKey.generate())
    assert read_checkpoint(SIGNED + witness, KEY.public) == CHECKPOINT
    with pytest.raises(BadSignature):
        read_checkpoint(CHECKPOINT.text + "\n" + witness, KEY.public)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        SIGNED.removesuffix("\n"),
        SIGNED + "\n",
        SIGNED + "hello\n",
        CHECKPOINT.text,
        CHECKPOINT.text + "\n",
        SIGNED.replace("1234", "01234"),
        SIGNED.replace("1234", "-1"),
        SIGNED.replace("1234", "1_234"),
        SIGNED.replace("\ntime", "\nmore\ntime"),
        SIGNED.replace("\n", "\r\n"),
        "\n" + SIGNED,
    ],
)
def test_what_is_no_signed_checkpoint_is_refused(text):
    with pytest.raises(TamperedLog):
        read_checkpoint(text, KEY.public)


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("origin", ("my ledger", 1, bytes(32))),
        ("origin", ("", 1, bytes(32))),
        ("origin", ("a\nb", 1, bytes(32))),
        ("origin", ("a+b", 1, bytes(32))),
        ("origin", ("\ud800", 1, bytes(32))),
        ("size", ("ledger", -1, bytes(32))),
        ("root", ("ledger", 1, bytes(31))),
        ("time", ("ledger", 1, bytes(32), "now")),
    ],
)
def test_a_wrong_field_is_named(field, arguments):
    with pytest.raises(LedgerError, match=f"^{field} "):
        Checkpoint(*arguments)
