"""People who ask, processes that work for them and may be killed, and what must hold in the end.

Processes are forked from one that has imported everything, and in which JAX has not computed: this module
must not make it.
"""

import collections
import dataclasses
import functools
import json
import multiprocessing
import multiprocessing.forkserver
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from ledger.crash_points import dying_at
from unbayes.cli import app
from unbayes.ledger import (
    Conflict,
    DatabaseProblem,
    Ledger,
    Locked,
    ModelSettings,
    Records,
    RequestState,
    Submission,
    keys,
)

NAME = "m"
# What a person wants in the end, and how often.
FATES = {"erase": 12, "deny": 2, "withdraw": 2, "regret": 2}
ENDS = {
    "erase": {RequestState.CLOSED},
    "deny": {RequestState.DENIED},
    "withdraw": {RequestState.WITHDRAWN},
    # Whoever withdraws after the approval may be too late.
    "regret": {RequestState.WITHDRAWN, RequestState.CLOSED},
}
# What a command that was refused exits with.
REFUSED = 2
# Where the rows of each person are, beside what was acknowledged.
TABLES = "tables"
# Requests that are submitted in one transaction.
AT_ONCE = 100
# How often something else happens when a process is killed.
MEANWHILE = 0.1
# Seconds that anything may take.
LONG_ENOUGH = 300


@dataclasses.dataclass(frozen=True)
class Person:
    number: int
    rows: tuple[int, ...]
    fate: str

    @property
    def name(self):
        return f"person {self.number}"

    @property
    def key(self):
        return f"key of {self.number}"


@dataclasses.dataclass(frozen=True)
class Plan:
    """Who asks for what: people with one to three records each, of which some are asked for by several."""

    people: tuple[Person, ...]
    records: int

    @classmethod
    def draw(cls, people, records, seed=0):
        rng = random.Random(seed)
        fates = rng.choices(list(FATES), list(FATES.values()), k=people)
        asked = range(records // 2)
        return cls(
            tuple(
                Person(i, tuple(rng.sample(asked, rng.randint(1, 3))), fate) for i, fate in enumerate(fates)
            ),
            records,
        )

    def data(self):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(self.records, 2))
        return x, x @ [1.0, -2.0] + 0.3 * rng.normal(size=self.records)

    def ids(self, rows):
        return [f"record-{row}" for row in rows]

    def submissions(self, people):
        """As the commands submit them, so that it does not matter who does."""
        x, y = self.data()
        return [
            Submission(
                each.name,
                Records.of_arrays(x[list(each.rows)], y[list(each.rows)], self.ids(each.rows)),
                client="cli",
                idempotency_key=each.key,
            )
            for each in people
        ]

    def write_tables(self, folder):
        """A table of each person's rows, for commands."""
        folder.mkdir()
        x, y = self.data()
        for each in self.people:
            cells = [[f"record-{row}", *map(repr, [*x[row].tolist(), float(y[row])])] for row in each.rows]
            lines = [["id", "a", "b", "y"], *cells]
            (folder / f"{each.number}.csv").write_text("".join(",".join(line) + "\n" for line in lines))


# What processes do. Each opens the ledger for itself.


def start_ledger(folder, plan, model_file, db=None):
    with Ledger.create(folder, db=db) as ledger:
        ledger.register(NAME, model_file, ids="id", settings=ModelSettings(when="now"))


@dataclasses.dataclass
class Clerk:
    """Brings requests forward step by step; each step may be done again."""

    ledger: Ledger
    plan: Plan
    acknowledged: Path

    def __post_init__(self):
        self.submissions = self.plan.submissions(self.plan.people)
        self.file = os.open(self.acknowledged, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def note(self, *words):
        os.write(self.file, (" ".join(map(str, words)) + "\n").encode())

    def submit(self, *people):
        wanted = [self.submissions[each.number] for each in people]
        numbers = self.ledger.request_many(NAME, wanted)
        for person, number in zip(people, numbers, strict=True):
            self.note("submitted", person.number, number)
        return numbers

    def approve(self, number):
        self.ledger.approve(number)

    def deny(self, number):
        self.ledger.deny(number, "a ground")

    def withdraw(self, number):
        self.ledger.withdraw(number)

    def step(self, person):
        """One step towards what the person wants; True where nothing is left to do."""
        (number,) = self.submit(person)
        state, fate = self.ledger.show(number).state, person.fate
        if state is RequestState.RECEIVED and fate in ("erase", "regret"):
            self.approve(number)
            self.note("approved", person.number, number)
        elif state is RequestState.RECEIVED and fate == "deny":
            self.deny(number)
            self.note("ended", person.number, number)
        elif state in (RequestState.RECEIVED, RequestState.APPROVED) and fate in ("withdraw", "regret"):
            self.withdraw(number)
            self.note("ended", person.number, number)
        return state in ENDS[fate]


class CommandClerk(Clerk):
    """The same by the commands, each of which opens the ledger anew."""

    def run(self, *arguments):
        place = self.ledger._desk.keys.folder.parent
        done = CliRunner().invoke(app, [*map(str, arguments), "--ledger", str(place)])
        if isinstance(done.exception, Exception):
            raise done.exception
        if done.exit_code == REFUSED:
            assert "database is locked" not in done.stderr
            raise Conflict(done.stderr)
        return done

    def submit(self, *people):
        numbers = []
        for person in people:
            table = self.acknowledged.with_name(TABLES) / f"{person.number}.csv"
            ask = ("request", NAME, "--rows", table, "--subject", person.name, "--key", person.key)
            numbers.append(json.loads(self.run(*ask, "--json").stdout)[0]["number"])
            self.note("submitted", person.number, numbers[-1])
        return numbers

    def approve(self, number):
        self.run("approve", number)

    def deny(self, number):
        self.run("deny", number, "--ground", "a ground")

    def withdraw(self, number):
        self.run("withdraw", number)


def keep_commanding(folder, plan, acknowledged, seed):
    """Whatever the commands do, in any order, until killed."""
    rng = random.Random(seed)

    def work(ledger):
        clerk = CommandClerk(ledger, plan, acknowledged)
        while True:
            chance = rng.random()
            if chance < 0.1:
                with_others_at_work(clerk.run, "gc")
            elif chance < 0.15:
                with_others_at_work(clerk.run, "log", "checkpoint")
            elif chance < 0.3:
                with_others_at_work(clerk.run, "apply", NAME)
            else:
                with_others_at_work(clerk.step, rng.choice(plan.people))

    with_database(folder, work)


def keep_books(folder, plan, acknowledged, seed):
    """Whatever a clerk does, in any order, until killed."""
    rng = random.Random(seed)

    def work(ledger):
        clerk = Clerk(ledger, plan, acknowledged)
        while True:
            chance = rng.random()
            if chance < 0.1:
                clerk.submit(*rng.sample(plan.people, min(5, len(plan.people))))
            elif chance < 0.2:
                ledger.finish()
            elif chance < 0.23:
                ledger.gc()
            else:
                with_others_at_work(clerk.step, rng.choice(plan.people))

    with_database(folder, work)


def keep_applying(folder, served):
    """Apply what waits, and hand the model out, until killed."""

    def work(ledger):
        while True:
            with_others_at_work(ledger.apply, NAME)
            ledger.serve_model(NAME, served)
            time.sleep(0.02)

    with_database(folder, work)


def submit_all(folder, plan, acknowledged, people):
    """Submit for these people, some at once and some one by one, and bring each a step or two forward."""
    with Ledger.open(folder) as ledger:
        clerk = Clerk(ledger, plan, acknowledged)
        half = len(people) // 2
        for first in range(0, half, AT_ONCE):
            clerk.submit(*people[first : min(first + AT_ONCE, half)])
        for person in people:
            with_others_at_work(clerk.step, person)


def do_once(folder, plan, acknowledged, people, point, keys_a_sheet):
    """All that a clerk does, and die at that point of it."""
    keys.KEYS_A_SHEET = keys_a_sheet
    with dying_at(point), Ledger.open(folder) as ledger:
        clerk = Clerk(ledger, plan, acknowledged)
        clerk.submit(*people)
        for person in people:
            clerk.step(person)
        ledger.finish()


def apply_once(folder, served, point):
    """Apply what waits and hand it out, and die at that point of it."""
    with Ledger.open(folder) as ledger, dying_at(point):
        ledger.apply(NAME)
        ledger.serve_model(NAME, served)


def finish(folder):
    with Ledger.open(folder) as ledger:
        ledger.finish()
        assert not ledger.number_by_state().keys() & {RequestState.APPLIED, RequestState.REPORTED}
        ledger.verify_log()


def end(folder, plan, acknowledged, served, keys_a_sheet=keys.KEYS_A_SHEET):
    """Bring everything to its end."""
    keys.KEYS_A_SHEET = keys_a_sheet
    with Ledger.open(folder) as ledger:
        clerk = Clerk(ledger, plan, acknowledged)
        clerk.submit(*plan.people)
        ends = {each.subject: each.state for each in ledger.requests(limit=None)}
        digest = ledger._desk.keys.digest
        left = [
            person
            for person in plan.people
            if ends[digest("subject", f"person {person.number}")] not in ENDS[person.fate]
        ]
        while left:
            left = [person for person in left if not clerk.step(person)]
            ledger.apply(NAME)
        ledger.serve_model(NAME, served)


def with_others_at_work(do, *arguments):
    """Do something that may be refused because somebody else is doing the same."""
    try:
        do(*arguments)
    except (Locked, Conflict):
        time.sleep(0.005)


def with_database(folder, work):
    """Work with a ledger whose database may be stopped, and comes back."""
    while True:
        try:
            with Ledger.open(folder) as ledger:
                return work(ledger)
        except DatabaseProblem as error:
            if "database is locked" in str(error):
                raise
            time.sleep(0.05)


# Starting and killing them.


class Command:
    """A command in a process that has imported nothing yet, as `multiprocessing` shows its processes."""

    def __init__(self, *arguments):
        command = [sys.executable, "-m", "unbayes.cli", *map(str, arguments)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.kill = self._process.kill

    def join(self, seconds):
        self._process.wait(seconds)

    @property
    def exitcode(self):
        return self._process.returncode


class Processes:
    """Starts processes that have imported everything, and sees how they end."""

    PRELOADED = ("ledger.torture", "ledger.crash_points", "unbayes.ledger.solving", "unbayes.ledger.applying")

    def __init__(self):
        self.context = multiprocessing.get_context("forkserver")
        tests = str(Path(__file__).parents[1])
        before = os.environ.get("PYTHONPATH")
        # The server of Python 3.11 does not look where this process would.
        os.environ["PYTHONPATH"] = os.pathsep.join([tests, before] if before else [tests])
        self.context.set_forkserver_preload(list(self.PRELOADED))
        multiprocessing.forkserver.ensure_running()
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
        self.killed = collections.Counter()

    def start(self, task, *arguments):
        process = self.context.Process(target=task, args=arguments, daemon=True)
        process.start()
        return process

    def run(self, task, *arguments):
        """Wait for one that is to end well."""
        process = self.start(task, *arguments)
        process.join(LONG_ENOUGH)
        assert process.exitcode == 0, f"{task.__name__} ended with {process.exitcode}"

    def kill(self, process, what):
        process.kill()
        process.join(LONG_ENOUGH)
        assert process.exitcode == -signal.SIGKILL, f"{what} ended with {process.exitcode} before"
        self.killed[what] += 1


@dataclasses.dataclass
class Role:
    """A process that is killed and started again: what it does, and how long it lives, in seconds.

    What it does is a function, or `Command`.
    """

    name: str
    task: object
    arguments: object
    lives: tuple[float, float]


def torment(processes, roles, kills, rng, between, meanwhile=None, round_of=50):
    """Kill processes at random moments and start them again.

    Now and then all are killed, and `between` is called; `meanwhile` now and then while they work.
    """
    done = 0
    while done < kills:
        living = [_start(processes, role, rng) for role in roles]
        for _ in range(min(round_of, kills - done)):
            living.sort(key=lambda each: each[0])
            moment, role, process = living.pop(0)
            time.sleep(max(0.0, moment - time.monotonic()))
            if meanwhile is not None and rng.random() < MEANWHILE:
                meanwhile()
            processes.kill(process, role.name)
            done += 1
            living.append(_start(processes, role, rng))
        for _, role, process in living:
            processes.kill(process, role.name)
            done += 1
        between()


def _start(processes, role, rng):
    start = Command if role.task is Command else functools.partial(processes.start, role.task)
    process = start(*role.arguments(rng.randrange(2**32)))
    return time.monotonic() + rng.uniform(*role.lives), role, process
