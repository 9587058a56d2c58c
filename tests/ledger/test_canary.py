"""Nobody's rows, identifiers or name can be found again, neither in a database nor in what is handed out."""

import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import sqlalchemy as sa

from ledger.holding import Training
from ledger.postgresql import folder_of_binaries, running
from ledger.receiving import Receiver
from ledger.torture import NAME, Plan
from unbayes.ledger import Ledger, Records, RequestState, log, schema

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgresql")
# Recognisable in any form in which a number may be written.
CANARY = 1234.5678901234
WORDS = [b"canary-", str(CANARY).encode(), b"1234.567"]
PACKED = [np.array(CANARY, form).tobytes() for form in ("<f8", ">f8", "<f4", ">f4")]
PLANTED = WORDS + PACKED + [each.hex().encode() for each in (b"canary-", *PACKED)]


@pytest.fixture(scope="module")
def server():
    if (binaries := folder_of_binaries()) is None:
        pytest.skip("there is no PostgreSQL here: no initdb and pg_ctl")
    with running(binaries) as server:
        yield server


@pytest.fixture(scope="module")
def training(tmp_path_factory):
    return Training(tmp_path_factory.mktemp("trained"), Plan.draw(1, 100))


def in_tables(url):
    """All tables, as COPY writes them."""
    found = b""
    with psycopg.connect(url) as connection:
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert len(names) > 10
        for (name,) in names:
            with connection.cursor().copy(f'COPY "{name}" TO STDOUT') as copy:
                found += b"".join(map(bytes, copy))
    return found


def in_files(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def require_nothing(*places):
    for place in places:
        assert not [each for each in PLANTED if each in place]


def plant(ledger, subject, **options):
    x, y = np.array([[CANARY, 0.5]]), np.array([CANARY])
    records = Records.of_arrays(x, y, [f"canary-record of {subject}"])
    return ledger.request(NAME, subject=f"canary-{subject}", rows=records, **options)


@pytest.mark.long
def test_nothing_of_a_request_is_kept_in_postgresql(server, training, tmp_path, caplog):
    caplog.set_level(logging.INFO, "sqlalchemy.engine")
    url = server.new_database("canary")
    with Ledger.create(tmp_path / "ledger", db=url) as ledger:
        ledger.register(NAME, training.file, ids="id")
        applied = plant(ledger, "applied", missing="skip")
        held, denied = plant(ledger, "held"), plant(ledger, "denied")
        for request in (applied, held):
            ledger.approve(request.id)
        ledger.deny(denied.id, "a ground")
        require_nothing(in_tables(url))
        ledger.apply(NAME)
        assert ledger.show(applied.id).state is RequestState.CLOSED
        assert ledger.show(held.id).hold is not None
        report = ledger.report(applied.id)
        require_nothing(in_tables(url), in_files(tmp_path), report)
        ledger.withdraw(held.id)
    logged = "\n".join(record.getMessage() for record in caplog.records).encode()
    assert b"INSERT INTO payload" in logged
    require_nothing(in_tables(url), in_files(tmp_path), logged)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM FULL")
        connection.execute("CHECKPOINT")
    # Tables, the write-ahead log, and what the server says of statements.
    require_nothing(in_files(server.folder))


class Commands:
    """Runs commands in processes that have folders of their own: for temporary files, to work in, as home."""

    def __init__(self, folder):
        self.ledger, self.said = folder / "ledger", []
        self.own = {name: folder / name for name in ("temporary", "working", "home")}
        for each in self.own.values():
            each.mkdir()

    def __call__(self, *arguments, code=0):
        places = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(self.own["temporary"]))
        done = subprocess.run(
            [sys.executable, "-m", "unbayes.cli", *map(str, arguments), "--ledger", str(self.ledger)],
            capture_output=True,
            check=False,
            cwd=self.own["working"],
            env=os.environ | places | {"HOME": str(self.own["home"]), "JAX_LOGGING_LEVEL": "INFO"},
        )
        assert done.returncode == code, done.stderr
        self.said.append(done.stdout + done.stderr)
        return done

    def require_nothing(self):
        require_nothing(in_files(self.ledger), *map(in_files, self.own.values()), *self.said)


def write_canaries(path, *names, target=str(CANARY)):
    lines = ["id,a,b,y", *(f"canary-record of {name},{CANARY},0.5,{target}" for name in names)]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.long
def test_nothing_of_a_request_is_kept_by_processes_on_sqlite(training, tmp_path):
    """Neither in the ledger nor in temporary files, nor in what commands and the worker say."""
    run = Commands(tmp_path)
    run("init")
    run("register", NAME, training.file, "--ids", "id", "--when", "now")
    given = tmp_path / "given"
    given.mkdir()
    tables = {name: write_canaries(given / f"{name}.csv", name) for name in ("applied", "held", "denied")}
    # The search finds what is there.
    assert all(word in in_files(given) for word in WORDS)
    ask = ["request", NAME, "--rows"]
    run(*ask, tables["applied"], "--subject", "canary-applied", "--missing", "skip", "--approve")
    run(*ask, tables["held"], "--subject", "canary-held", "--approve")
    run(*ask, tables["denied"], "--subject", "canary-denied")
    run("deny", 3, "--ground", "a ground")
    for refused in (
        write_canaries(given / "twice.csv", "twice", "twice"),
        write_canaries(given / "word.csv", "word", target=f"canary-{CANARY}"),
    ):
        run(*ask, refused, "--subject", "canary-refused", code=2)
    run.require_nothing()
    done = run("worker", "--once")
    assert b"request 2 is on hold" in done.stdout
    # A sheet of keys that cannot be read: the worker says so, and goes on.
    sheet = next((run.ledger / "keys" / "sheets").glob("*.keys"))
    kept = sheet.read_bytes()
    run("approve", 2)
    sheet.write_bytes(kept[:-1])
    assert b"was altered" in run("worker", "--once", code=2).stderr
    run.require_nothing()
    sheet.write_bytes(kept)
    run("worker", "--once")
    run("requests", "--json")
    run("report", 1, "--out", run.own["working"] / "report.json")
    run("withdraw", 2)
    run("log", "verify")
    run.require_nothing()


def test_secrets_of_tokens_and_hooks_are_shown_once_and_kept_nowhere(server, training, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    url = server.new_database("secrets")
    with Ledger.create(tmp_path / "ledger", db=url) as ledger, Receiver() as receiver:
        _, token = ledger.tokens.create("portal", ["submit"])
        hook, secret = ledger.hooks.add(receiver.url)
        ledger.register(NAME, training.file, ids="id")
        plant(ledger, "told")
        assert ledger.hooks.deliver() == 3
        assert ledger.tokens.find(token)
        logged = "\n".join(record.getMessage() for record in caplog.records).encode()
        places = [in_tables(url), in_files(tmp_path), logged]
        ledger.hooks.remove(hook.id)
        places += [in_tables(url), in_files(tmp_path)]
    told = b"".join(each.body + str(each.headers).encode() for each in receiver.got)
    require_nothing(*places, told)
    assert receiver.url.encode() in places[0]
    assert receiver.url.encode() not in places[3]
    for shown in (token, secret):
        # What is random in it.
        word = shown[-43:].encode()
        assert not [place for place in (*places, told) if word in place]


def test_words_that_are_kept_are_found_by_the_same_means(server, training, tmp_path):
    """A reference is kept as it is, by intention: so the search finds what is there."""
    url = server.new_database("reference")
    with Ledger.create(tmp_path / "ledger", db=url) as ledger:
        ledger.register(NAME, training.file, ids="id")
        plant(ledger, "x", reference="kept-ticket")
    assert b"kept-ticket" in in_tables(url)


def test_a_reader_sees_one_state(server, training, tmp_path):
    """Whoever checks the log while others write does not take the new events for forged ones."""
    url = server.new_database("snapshot")
    with Ledger.create(tmp_path / "ledger", db=url) as ledger:
        ledger.register(NAME, training.file, ids="id")
        with ledger._desk.database.reading() as connection:
            before = connection.execute(sa.select(schema.log_head.c.size)).scalar_one()
            plant(ledger, "x")
            assert log.verify_log(connection, ledger.public_key).events == before
        assert ledger.verify_log().events == before + 1
