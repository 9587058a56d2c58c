import json
import random
import subprocess
import sys

import pytest

from unbayes.ledger.errors import UnverifiableReport
from unbayes.ledger.signing import SigningKey
from unbayes.ledger.verify import verify_report

from .reports import CONTENTS, KEY, OPENINGS, report

REPORT = report(openings=OPENINGS)
VERIFIED = verify_report(REPORT, KEY.public)


def test_without_a_key_the_result_says_so():
    verified = verify_report(REPORT)
    assert not verified.is_key_known
    assert verified.key == KEY.public
    assert verified.contents == CONTENTS


def test_a_report_that_somebody_else_signed_is_refused():
    """It is in order by itself; only the published key tells."""
    other = SigningKey.generate()
    forged = report(key=other)
    assert verify_report(forged).key_id == other.key_id
    with pytest.raises(UnverifiableReport, match=f"signed by the key {other.key_id}, not by {KEY.key_id}"):
        verify_report(forged, KEY.public)


def changed(*path, to):
    value = json.loads(REPORT)
    inner = value
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = to
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "the file is damaged"),
        (b"[]", "the file is damaged"),
        (REPORT[:-20], "the file is damaged"),
        (b"\xef\xbb\xbf" + REPORT, "the file is damaged"),
        (changed("more", to=1), "unknown fields: more"),
        (changed("log", "more", to=1), "the log has unknown fields: more"),
        (changed("log", to=None), "the log is not an object"),
        (changed("publicKey", to="hello"), "the key is not the right one"),
        (changed("publicKey", to=3), "the public key is not a text"),
        (changed("publicKey", to=SigningKey.generate().public.to_pem().decode()), "the key is not"),
        (changed("envelope", to={}), "the signature does not hold"),
        (changed("log", "checkpoint", to="hello"), "the checkpoint of the log does not hold"),
        (changed("log", "checkpoint", to=3), "the checkpoint is not a text"),
        (changed("log", "event", to="{}"), "the entry of the log is damaged"),
        (changed("log", "index", to=7), "it is entry 6, not 7"),
        (changed("log", "index", to=6.0), "it is entry 6, not 6.0"),
        (changed("log", "proof", to=[]), "the log does not hold the entry"),
        (changed("log", "proof", to=["zz"]), "not hexadecimal"),
        (changed("log", "proof", to=[3]), "not hexadecimal"),
        (changed("log", "proof", to="00"), "the proof is not a list"),
        (changed("openings", "subject", "salt", to="00"), "the openings do not fit"),
        (changed("openings", "subject", "details", to={}), "the openings do not fit"),
        (changed("openings", "records", to=3), "the openings do not fit"),
        (changed("openings", to=None), "the openings do not fit"),
        (changed("openings", "more", to=3), "openings has unknown fields: more"),
    ],
)
def test_a_refusal_names_what_fails(data, named):
    with pytest.raises(UnverifiableReport, match=named):
        verify_report(data, KEY.public)


def outcome(data):
    """The verified report, or None where it is refused; any other error is a failure."""
    try:
        return verify_report(data, KEY.public)
    except UnverifiableReport:
        return None


def test_every_changed_byte_is_refused_or_changes_nothing():
    chance, harmless = random.Random(0), 0
    for at in range(len(REPORT)):
        value = chance.choice([REPORT[at] ^ 1 << chance.randrange(8), chance.randrange(256)])
        found = outcome(REPORT[:at] + bytes([value]) + REPORT[at + 1 :])
        assert found is None or found == VERIFIED, at
        harmless += found is not None and value != REPORT[at]
    # White space only.
    assert harmless < 0.01 * len(REPORT)


def test_thousands_of_random_mutations_are_refused_or_change_nothing():
    chance = random.Random(1)
    for _ in range(3_000):
        data = bytearray(REPORT)
        for _ in range(chance.randint(1, 3)):
            start = chance.randrange(len(data))
            stop = min(start + chance.choice([0, 1, 1, 2, 40]), len(data))
            piece = chance.choice([b"", b" ", b"\n", b"0", b'"', b"}", b"\\u0041", REPORT[stop : stop + 7]])
            data[start:stop] = piece
        found = outcome(bytes(data))
        assert found is None or found == VERIFIED


def test_white_space_and_the_order_of_fields_do_not_matter():
    value = json.loads(REPORT)
    for again in (json.dumps(value), json.dumps(value, indent=7), json.dumps(dict(reversed(value.items())))):
        assert outcome(again.encode()) == VERIFIED


def test_verifying_needs_neither_a_database_nor_jax():
    code = "import sys, unbayes.ledger.verify; print({'jax', 'sqlalchemy', 'numpy'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "set()\n"
