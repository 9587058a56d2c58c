"""Servers and workers are killed while clients submit: nothing is lost, nothing is done twice.

Real processes, as `unbayes serve` and `unbayes worker` start them.
"""

import contextlib
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

import unbayes as ub
from ledger.conftest import setting  # noqa: F401
from ledger.postgresql import folder_of_binaries, running
from ledger.setting import RECORDS, require_equal
from unbayes.ledger import Conflict, Ledger, LedgerError, ModelSettings, RequestState, verify_report
from unbayes.ledger.tokens import Scope
from unbayes.service.client.calling import NoAnswer

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not Path("/proc").exists(), reason="looks for processes in /proc"),
]
# Seconds that anything may take on a busy machine.
PATIENCE = 120
CLIENTS = 3
STARTED = []


@pytest.fixture(autouse=True)
def leaving_none_behind():
    """Whatever comes of a test, its processes end."""
    yield
    while STARTED:
        process = STARTED.pop().process
        process.kill()
        process.wait(PATIENCE)


def wait_until(is_so, pause=0.02):
    end = time.monotonic() + PATIENCE
    while not (found := is_so()):
        assert time.monotonic() < end
        time.sleep(pause)
    return found


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Program:
    """A command of `unbayes` that is killed and started again."""

    def __init__(self, folder, log, *words):
        self.command = [sys.executable, "-m", "unbayes.cli", *words, "--ledger", str(folder)]
        self.log, self.process, self.kills = log, None, 0
        STARTED.append(self)
        self.start()

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def kill(self):
        assert self.process.poll() is None, self.log.read_text()
        self.process.kill()
        assert self.process.wait(PATIENCE) == -signal.SIGKILL
        self.kills += 1

    def stop(self):
        self.process.terminate()
        code = self.process.wait(PATIENCE)
        assert code in (0, -signal.SIGTERM), self.log.read_text()


class Instance(Program):
    """A server, which may have a worker."""

    def __init__(self, folder, log, *words):
        port = free_port()
        self.address = f"http://127.0.0.1:{port}"
        super().__init__(folder, log, "serve", "--port", str(port), "--rate", "500", *words)

    def is_ready(self):
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"{self.address}/ready", timeout=5).status_code == 200
        return False

    @property
    def worker(self):
        """Number of the worker that this server has started; None while there is none."""
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                is_child = int(entry.name) and _parent(entry) == self.process.pid
                if is_child and b"worker" in (entry / "cmdline").read_bytes().split(b"\0"):
                    return int(entry.name)
        return None


def _parent(entry):
    return int((entry / "stat").read_text().rpartition(")")[2].split()[1])


class Crowd:
    """People who ask from several threads, and somebody who approves, whatever happens to the servers."""

    def __init__(self, setting, folder, addresses):  # noqa: F811
        self.setting, self.addresses = setting, addresses
        with Ledger.open(folder) as ledger:
            self.submit = ledger.tokens.create("app", [Scope.SUBMIT])[1]
            self.approve = ledger.tokens.create("team", [Scope.APPROVE])[1]
        self.asked, self.errors, self.taken = {}, [], queue.Queue()
        self.rows = iter(range(RECORDS // 2))
        self.stopping, self.turn = threading.Event(), threading.Lock()
        work = [(self._ask, i) for i in range(CLIENTS)] + [(self._approve, 0)]
        self.threads = [threading.Thread(target=self._run, args=each) for each in work]

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        assert self.errors == []

    def _run(self, work, number):
        try:
            work(number)
        except Exception as error:
            self.errors.append(error)

    def _client(self, token, number):
        address = self.addresses[number % len(self.addresses)]
        return ub.Client(address, token, retries=0, timeout=20)

    def _ask(self, number):
        """Ask for one record at a time, again and again under the same key until it is acknowledged."""
        tries = number
        while not self.stopping.is_set():
            with self.turn:
                row = next(self.rows, None)
            if row is None:
                return
            records = self.setting.records(row)
            while True:
                tries += 1
                with contextlib.suppress(LedgerError), self._client(self.submit, tries) as client:
                    request = client.request(
                        "m", subject=f"person-{row}", rows=records, idempotency_key=f"key {row}"
                    )
                    break
                time.sleep(0.1)
            self.asked[row] = request.number
            self.taken.put(request.number)
            time.sleep(0.1)

    def _approve(self, _):
        """Approve each request; where no answer came, look what has happened."""
        tries = 0
        while not (self.stopping.is_set() and self._all_are_asked() and self.taken.empty()):
            try:
                number = self.taken.get(timeout=0.1)
            except queue.Empty:
                continue
            while True:
                tries += 1
                try:
                    with self._client(self.approve, tries) as client:
                        if client.show(number).state is RequestState.RECEIVED:
                            client.approve(number)
                    break
                except (NoAnswer, Conflict, LedgerError):
                    time.sleep(0.1)

    def _all_are_asked(self):
        return not any(thread.is_alive() for thread in self.threads[:-1])


def require_nothing_lost(folder, crowd, setting, logs):  # noqa: F811
    """Every request is there once and is closed, its record is out, and the log is whole."""
    with Ledger.open(folder) as ledger:

        def open_requests():
            return [each for each in ledger.requests(limit=None) if each.state is not RequestState.CLOSED]

        wait_until(lambda: not open_requests(), 0.2)
        requests = {each.id: each for each in ledger.requests(limit=None)}
        assert sorted(requests) == sorted(crowd.asked.values())
        assert len(crowd.asked) > 10
        for row, number in crowd.asked.items():
            request = requests[number]
            assert (request.client, request.asked, request.erased) == ("app", 1, 1)
            assert len(ledger.requests(subject=f"person-{row}")) == 1
            verified = verify_report(ledger.report(number), ledger.public_key)
            assert verified.contents.request.number == number
        ledger.verify_log()
        assert ledger.current("m").erased == len(crowd.asked)
        ledger.serve_model("m", folder / "served.unbayes")
        require_equal(ub.load(folder / "served.unbayes").posterior, setting.without(*crowd.asked))
        assert [finding.what for finding in ledger.doctor() if not finding.is_fine] == []
    for log in logs:
        text = log.read_text()
        assert "person-" not in text
        assert "record-" not in text
        assert "Traceback" not in text


def make(folder, setting, db=None):  # noqa: F811
    with Ledger.create(folder, db=db) as ledger:
        ledger.register("m", setting.file, ids="id", settings=ModelSettings(when="now"))


def test_a_server_and_its_worker_are_killed(tmp_path, setting):  # noqa: F811
    folder, log, rng = tmp_path / "ledger", tmp_path / "log", random.Random(0)
    make(folder, setting)
    server = Instance(folder, log)
    wait_until(server.is_ready)
    with Crowd(setting, folder, [server.address]) as crowd:
        for _ in range(4):
            time.sleep(rng.uniform(1.0, 4.0))
            worker = server.worker
            server.kill()
            if worker is not None:
                # It does not outlive the server.
                wait_until(lambda worker=worker: not is_alive(worker))
            server.start()
            wait_until(server.is_ready)
        take_lease_over(folder, server)
    require_nothing_lost(folder, crowd, setting, [log])
    assert server.kills == 4
    worker = wait_until(lambda: server.worker)
    server.stop()
    assert not is_alive(worker)


def take_lease_over(folder, server):
    """Kill the worker while it has the lease; another one takes its place, and the lease."""
    with Ledger.open(folder) as ledger:
        before = ledger.current("m").number
        worker = wait_until(lambda: server.worker)
        wait_until(lambda: f":{worker}:" in (ledger.model("m").lease_holder or ""), 0.001)
        os.kill(worker, signal.SIGKILL)
        other = wait_until(lambda: server.worker not in (None, worker) and server.worker)
        assert other != worker
        wait_until(lambda: ledger.current("m").number > before)


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.mark.skipif(folder_of_binaries() is None, reason="needs the binaries of PostgreSQL")
def test_two_instances_and_a_worker_on_postgresql_are_killed(tmp_path, setting):  # noqa: F811
    rng = random.Random(1)
    with running(folder_of_binaries()) as postgresql:
        folder = tmp_path / "ledger"
        make(folder, setting, postgresql.new_database("service"))
        logs = [tmp_path / "one", tmp_path / "two", tmp_path / "worker"]
        instances = [Instance(folder, log, "--no-worker") for log in logs[:2]]
        worker = Program(folder, logs[2], "worker", "--every", "0.2")
        for each in instances:
            wait_until(each.is_ready)
            assert each.worker is None
        with Crowd(setting, folder, [each.address for each in instances]) as crowd:
            for victim in (instances[0], worker, instances[1], instances[0], worker):
                time.sleep(rng.uniform(1.0, 4.0))
                victim.kill()
                time.sleep(rng.uniform(0.0, 1.0))
                victim.start()
            for each in instances:
                wait_until(each.is_ready)
        require_nothing_lost(folder, crowd, setting, logs)
        assert [each.kills for each in (*instances, worker)] == [2, 1, 2]
        for each in (*instances, worker):
            each.stop()
