"""`unbayes serve`: what it refuses, what it makes, and how it ends."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time

import httpx
import pytest
from typer.testing import CliRunner

from unbayes.cli import app
from unbayes.data.refusal import Refused
from unbayes.ledger import Ledger
from unbayes.service.server import Listening, _bound, is_local


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "[::1]", "localhost"])
def test_this_machine_is_local(host):
    assert is_local(host)
    Listening(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.com", "", "localhost.example.com"])
def test_nothing_listens_elsewhere_unless_told(host):
    assert not is_local(host)
    with pytest.raises(Refused, match="--expose"):
        Listening(host)
    assert Listening(host, is_exposed=True).host == host


REFUSED = {
    ("--host", "0.0.0.0"): "--expose",
    ("--source", "m"): "MODEL=PLACE:COLUMN",
    ("--source", "m=rows.csv"): "MODEL=PLACE:COLUMN",
    ("--source", "m=s3://bucket/rows.csv"): "MODEL=PLACE:COLUMN",
    ("--source", "m=nowhere.csv:who"): "there is no such file",
    ("--oidc-issuer", "https://issuer.example"): "go together",
    ("--oidc-audience", "us"): "go together",
    ("--oidc-issuer", "http://issuer.example", "--oidc-audience", "us"): "https",
}


@pytest.mark.parametrize("options", REFUSED, ids=" ".join)
def test_what_the_command_refuses(tmp_path, options):
    answer = CliRunner().invoke(app, ["serve", "--ledger", str(tmp_path / "ledger"), "--port", "0", *options])
    assert answer.exit_code == 2
    assert REFUSED[options] in answer.stderr
    assert answer.stdout == ""


def test_an_extra_that_is_missing(tmp_path, monkeypatch):
    for name in list(sys.modules):
        if name.startswith("unbayes.service.server"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    answer = CliRunner().invoke(app, ["serve", "--ledger", str(tmp_path / "ledger")])
    assert answer.exit_code == 2
    assert "pip install 'unbayes[service]'" in answer.stderr


def test_a_port_that_is_taken(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        answer = CliRunner().invoke(app, ["serve", "--ledger", str(tmp_path / "ledger"), "--port", str(port)])
    assert answer.exit_code == 2
    assert f"cannot listen at 127.0.0.1, port {port}" in answer.stderr
    assert not (tmp_path / "ledger").exists()


def started(folder, *options):
    command = [sys.executable, "-m", "unbayes.cli", "serve", "--ledger", str(folder), "--port", "0", *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def said(process, pattern):
    """What the operator is told, up to a line."""
    lines = []
    for line in process.stderr:
        lines.append(line)
        if found := re.search(pattern, line):
            return found, lines
    raise AssertionError("".join(lines))


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(each) for each in file.read().split()]


@pytest.mark.long
def test_one_command_makes_what_is_missing_and_ends_in_order(tmp_path):
    folder = tmp_path / "ledger"
    process = started(folder)
    try:
        address = said(process, r"listens at (http://127\.0\.0\.1:\d+)")[0][1]
        token = said(process, r"(unbayes_\S+)")[0][1]
        headers = {"Authorization": f"Bearer {token}"}
        for _ in range(100):
            try:
                answer = httpx.get(f"{address}/v1/tokens", headers=headers)
                break
            except httpx.TransportError:
                time.sleep(0.1)
        (listed,) = answer.json()["tokens"]
        assert listed["name"] == "operator"
        assert listed["expires"] is not None
        (worker,) = children(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    lines = [json.loads(line) for line in out.splitlines()]
    assert any(each.get("route") == "/v1/tokens" and each["caller"] == "operator" for each in lines)
    assert token not in out
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
    with Ledger.open(folder) as ledger:
        assert len(ledger.tokens.all()) == 1


@pytest.mark.long
def test_the_first_token_is_shown_once(tmp_path):
    folder = tmp_path / "ledger"
    with Ledger.create(folder) as ledger:
        ledger.tokens.create("somebody", ["audit"])
    process = started(folder, "--no-worker", "--no-json-logs")
    said(process, r"listens at")
    time.sleep(1)
    assert children(process.pid) == []
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out == ""
    assert "unbayes_" not in err


def test_answers_are_sent_at_once():
    """What is sent in two packets does not wait, between them, for the other side's word."""
    with _bound(Listening(port=0)) as bound, socket.create_connection(bound.getsockname()):
        accepted, _ = bound.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
