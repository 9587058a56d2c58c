"""A real PostgreSQL for tests, from the binaries that are installed."""

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

DEBIAN = Path("/usr/lib/postgresql")
# Whom the server may run as where the tests run as root, which it refuses.
USERS = ("postgres", "nobody")


def folder_of_binaries():
    """Where `initdb` and `pg_ctl` are; None where they are not."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += sorted(DEBIAN.glob("*/bin"), reverse=True)
    return next((each for each in folders if (each / "initdb").exists() and (each / "pg_ctl").exists()), None)


class Server:
    """A server in a folder of its own."""

    def __init__(self, folder, binaries):
        self.folder, self.binaries = folder, binaries
        self.user = None
        if os.geteuid() == 0:
            names = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
            self.user = next(names[name] for name in USERS if name in names)
            os.chown(folder, self.user, -1)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._run("initdb", "--auth", "trust", "--username", "tests", "--encoding", "UTF8")
        self.start()

    def start(self):
        options = f"-k {self.folder} -p {self.port} -c listen_addresses=127.0.0.1"
        self._run("pg_ctl", "--wait", "--log", self.folder / "log", "--options", options, "start")

    def stop(self, mode="immediate"):
        self._run("pg_ctl", "--mode", mode, "--wait", "stop")

    def new_database(self, name):
        import psycopg

        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def url(self, name):
        return f"postgresql://tests@127.0.0.1:{self.port}/{name}"

    def _run(self, program, *arguments):
        command = [self.binaries / program, "--pgdata", self.folder / "data", *arguments]
        own = {"user": self.user} if self.user is not None else {}
        done = subprocess.run(
            list(map(str, command)),
            check=False,
            text=True,
            cwd=self.folder,
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            **own,
        )
        assert done.returncode == 0, done.stdout


@contextlib.contextmanager
def running(binaries):
    """A server while the block runs; nothing of it is left afterwards."""
    # Not in pytest's folder, which none but its owner may enter; short, as the name of a socket has to be.
    with tempfile.TemporaryDirectory(prefix="unbayes-pg-", ignore_cleanup_errors=True) as folder:
        server = Server(Path(folder), binaries)
        try:
            yield server
        finally:
            with contextlib.suppress(AssertionError):
                server.stop()
