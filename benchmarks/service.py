"""The service under load, and under calls that are made up from its document. Loopback only.

Load: so many clients at once for a minute, each with its own token, against `unbayes serve` in a process of
its own; 80% read, 20% submit one person's record. Each waits for its answer, thinks for a random time with
the mean below, and calls again. Abuse (`--fuzz`): schemathesis, every answer checked against the document.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import jax
import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from ledger.setting import Setting  # noqa: E402
from unbayes.ledger import Ledger, Submission  # noqa: E402
from unbayes.ledger.tokens import Scope  # noqa: E402

CLIENTS, SECONDS, THINK, SUBMITS = 50, 60.0, 0.5, 0.2
# Requests that are there before.
BEFORE = 2000
GOALS = {"reads": 50.0, "submissions": 150.0}
READS = ("/v1/requests?limit=20", "/v1/requests/{number}", "/v1/models", "/v1/requests/{number}/events")


@contextlib.contextmanager
def served(folder: Path, *options: str) -> Iterator[str]:
    """The address of `unbayes serve`, while the block runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "unbayes.cli",
        "serve",
        "--ledger",
        str(folder),
        "--port",
        str(port),
        *options,
    ]
    with open(os.devnull, "w") as nowhere:
        process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{address}/ready").status_code == 200:
                    break
            if process.poll() is not None:
                raise RuntimeError("the service has ended")
            time.sleep(0.1)
        yield address
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def prepare(folder: Path) -> tuple[Setting, list[str]]:
    """A ledger with some requests, and a token for each client."""
    setting = Setting(folder)
    with Ledger.create(folder / "ledger") as ledger:
        ledger.register("m", setting.file, ids="id")
        everybody = [
            Submission(f"person {i}", setting.records(i % len(setting.ids)), client=f"client {i % CLIENTS}")
            for i in range(BEFORE)
        ]
        ledger.request_many("m", everybody)
        tokens = [ledger.tokens.create(f"client {i}", [Scope.SUBMIT, Scope.AUDIT])[1] for i in range(CLIENTS)]
    return setting, tokens


async def client(number: int, address: str, token: str, setting: Setting, end: float, found: dict) -> None:
    """One of them."""
    rng = random.Random(number)
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=address, headers=headers, timeout=30) as http:
        await asyncio.sleep(rng.uniform(0, 2 * THINK))
        step = 0
        while time.perf_counter() < end:
            step += 1
            is_submission = rng.random() < SUBMITS
            start = time.perf_counter()
            try:
                if is_submission:
                    row = rng.randrange(len(setting.ids))
                    form = {
                        "subject": f"client {number} step {step}",
                        "ids": [setting.ids[row]],
                        "inputs": [setting.x[row].tolist()],
                        "targets": [float(setting.y[row])],
                    }
                    key = {"Idempotency-Key": f"{number}-{step}"}
                    answer = await http.post("/v1/models/m/requests", json=form, headers=key)
                else:
                    answer = await http.get(rng.choice(READS).format(number=rng.randrange(1, BEFORE)))
                status = str(answer.status_code)
            except httpx.HTTPError as error:
                status = type(error).__name__
            taken = 1e3 * (time.perf_counter() - start)
            kind = "submissions" if is_submission else "reads"
            found["statuses"][kind, status] += 1
            found[kind].append(taken)
            await asyncio.sleep(rng.expovariate(1 / THINK))


async def load(address: str, tokens: list[str], setting: Setting, seconds: float) -> dict:
    """All of them at once."""
    found: dict = {"reads": [], "submissions": [], "statuses": Counter()}
    end = time.perf_counter() + seconds
    await asyncio.gather(*(client(i, address, token, setting, end, found) for i, token in enumerate(tokens)))
    return found


def run_load(seconds: float) -> tuple[list[str], dict]:
    """The load test: lines of a page, and numbers."""
    with tempfile.TemporaryDirectory(dir=".", prefix=".service-") as name:
        folder = Path(name)
        setting, tokens = prepare(folder)
        with served(folder / "ledger") as address:
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            found = asyncio.run(load(address, tokens, setting, seconds))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        with Ledger.open(folder / "ledger") as ledger:
            ledger.verify_log()
            kept = len(ledger.requests(limit=None)) - BEFORE
    statuses = {f"{kind} {status}": number for (kind, status), number in sorted(found["statuses"].items())}
    taken = found["statuses"]["submissions", "201"]
    # A submission that was on its way when the clients stopped would be there, too; none was.
    assert kept == taken, f"{taken} submissions were answered 201, and {kept} are there"
    numbers: dict = {"clients": CLIENTS, "seconds": seconds, "think": THINK, "statuses": statuses}
    lines = ["| | calls | p50 ms | p95 ms | p99 ms | goal p95 |", "| --- | --- | --- | --- | --- | --- |"]
    for kind, goal in GOALS.items():
        p50, p95, p99 = np.percentile(found[kind], [50, 95, 99])
        numbers[kind] = {"calls": len(found[kind]), "p50": p50, "p95": p95, "p99": p99, "goal": goal}
        lines.append(f"| {kind} | {len(found[kind]):,} | {p50:.1f} | {p95:.1f} | {p99:.1f} | < {goal:.0f} |")
    calls = sum(found["statuses"].values())
    fine = sum(n for (_, status), n in found["statuses"].items() if status in ("200", "201"))
    numbers |= {"calls_a_second": calls / seconds, "errors": calls - fine, "cpu_seconds": cpu}
    lines += ["", f"{calls / seconds:.0f} calls a second; answers other than 200 and 201: {calls - fine}."]
    return lines, numbers


def run_fuzz(calls: int, seconds: float) -> tuple[list[str], dict]:
    """The calls that are made up."""
    from service.fuzzing import fuzz

    with tempfile.TemporaryDirectory(dir=".", prefix=".service-") as name:
        folder = Path(name)
        prepare(folder)
        with (
            Ledger.open(folder / "ledger") as ledger,
            served(folder / "ledger", "--rate", "1000000") as address,
        ):

            def new_token() -> str:
                return ledger.tokens.create("fuzz", list(Scope))[1]

            headers = {"Authorization": f"Bearer {new_token()}"}
            document = httpx.get(f"{address}/openapi.json", headers=headers).json()
            known = {"name": "m", "number": 1}
            found = fuzz(address, new_token, document, calls, seconds=seconds, known=known)
            ledger.verify_log()
    statuses = {str(status): number for status, number in sorted(found.statuses.items())}
    for name, text in found.failures.items():
        print(name, text, sep="\n", file=sys.stderr)
    numbers = {"calls": found.calls, "server_errors": found.server_errors, "statuses": statuses}
    numbers |= {"operations": len(found.operations), "failures": sorted(found.failures)}
    lines = [
        f"{found.calls:,} calls over {len(found.operations)} operations; 5xx: {found.server_errors}; "
        f"answers that the document does not have: {len(found.failures)}.",
        "",
        "| status | answers |",
        "| --- | --- |",
        *(f"| {status} | {number:,} |" for status, number in statuses.items()),
    ]
    return lines, numbers


def main() -> None:
    """Measure, and write `service.md` and `service.json`; what is not measured anew stays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of load; 0 for none")
    parser.add_argument("--fuzz", type=int, default=0, metavar="CALLS", help="made up, such as 20000")
    parser.add_argument("--fuzz-seconds", type=float, default=3600.0, help="after which no more are made")
    parser.add_argument("--dry", action="store_true", help="write nothing")
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    place = Path(__file__).with_suffix(".json")
    kept = json.loads(place.read_text()) if place.exists() else {}
    if arguments.seconds:
        lines, numbers = run_load(arguments.seconds)
        kept["load"] = {"lines": lines, **numbers}
        print("\n".join(lines), numbers["statuses"], f"{numbers['cpu_seconds']:.1f} s CPU", sep="\n")
    if arguments.fuzz:
        lines, numbers = run_fuzz(arguments.fuzz, arguments.fuzz_seconds)
        kept["fuzz"] = {"lines": lines, **numbers}
        print("\n".join(lines))
    if arguments.dry:
        return
    place.write_text(json.dumps(kept, indent=1) + "\n")
    parts = ["# The service under load and abuse"]
    if "load" in kept:
        about = (
            f"{CLIENTS} clients at once for {kept['load']['seconds']:.0f} s, each with its own token and "
            f"{THINK} s of thought between two calls, on the mean; {SUBMITS:.0%} submit. SQLite, the worker "
            f"beside it, {os.cpu_count()} cores that the clients share. Every submission that was answered "
            "is in the ledger, and its log is whole."
        )
        parts.append("\n\n".join(["## Load", about, "\n".join(kept["load"]["lines"])]))
    if "fuzz" in kept:
        parts.append("## Calls that are made up\n\n" + "\n".join(kept["fuzz"]["lines"]))
    Path(__file__).with_suffix(".md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
