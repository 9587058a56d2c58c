"""Killed by SIGKILL at any moment, over and over: nothing is lost, and nothing is done twice."""

import random
import signal
import time

import pytest

from ledger import torture
from ledger.holding import Training, require_all_well
from ledger.postgresql import folder_of_binaries, running
from ledger.torture import Plan, Processes, Role
from unbayes.ledger import Ledger, keys

CLERK_LIVES = (0.0, 0.15)
APPLIER_LIVES = (0.1, 2.0)
# A worker of the command line has to import everything first.
WORKER_LIVES = (0.5, 6.0)


@pytest.fixture(scope="module")
def processes():
    return Processes()


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("psycopg", reason="needs the extra postgresql")
    if (binaries := folder_of_binaries()) is None:
        pytest.skip("there is no PostgreSQL here: no initdb and pg_ctl")
    with running(binaries) as server:
        yield server


class Scene:
    """A ledger, people who ask it, and processes that are killed while they work for them."""

    def __init__(self, folder, processes, people, records, db=None):
        self.processes, self.plan = processes, Plan.draw(people, records)
        self.training = Training(folder, self.plan)
        self.folder, self.acknowledged = folder / "ledger", folder / "acknowledged"
        (folder / "served").mkdir()
        self.served = folder / "served" / "model.unbayes"
        self.plan.write_tables(folder / torture.TABLES)
        torture.start_ledger(self.folder, self.plan, self.training.file, db)

    def torment(self, kills, meanwhile=None, seed=0, clerks=2):
        def desk(seed):
            return self.folder, self.plan, self.acknowledged, seed

        books = Role("clerk", torture.keep_books, desk, CLERK_LIVES)
        commands = Role("command", torture.keep_commanding, desk, APPLIER_LIVES)
        applying = Role("applier", torture.keep_applying, lambda _: (self.folder, self.served), APPLIER_LIVES)
        every = ("worker", "--every", 0.1, "--ledger", self.folder)
        worker = Role("worker", torture.Command, lambda _: every, WORKER_LIVES)

        def stand_still():
            self.processes.run(torture.finish, self.folder)

        roles = [books] * clerks + [commands, applying, worker]
        torture.torment(self.processes, roles, kills, random.Random(seed), stand_still, meanwhile)

    def die_at_points(self, task, arguments, points):
        """Do a thing again and again, and die at another point of it each time; how many there were."""
        for turn, point in enumerate(points):
            process = self.processes.start(task, *arguments(turn, point))
            process.join(torture.LONG_ENOUGH)
            if process.exitcode == 0:
                return turn
            assert process.exitcode == -signal.SIGKILL, point
            self.processes.killed[task.__name__] += 1
        raise AssertionError("there were more points than expected")

    def end(self):
        arguments = (self.folder, self.plan, self.acknowledged, self.served, keys.KEYS_A_SHEET)
        self.processes.run(torture.end, *arguments)
        return require_all_well(self.folder, self.training, self.acknowledged, self.served)


def torment_and_check(processes, folder, kills, people, records, db=None, meanwhile=None):
    began, before = time.monotonic(), dict(processes.killed)
    scene = Scene(folder, processes, people, records, db)
    scene.torment(kills, meanwhile)
    erased = scene.end()
    killed = {what: number - before.get(what, 0) for what, number in processes.killed.items()}
    print(f"{killed} killed, {erased} records taken out, {time.monotonic() - began:.0f} s")
    assert sum(killed.values()) >= kills
    assert all(killed[role] for role in ("clerk", "command", "applier", "worker"))


@pytest.mark.long
def test_killed_at_random_moments(processes, tmp_path):
    torment_and_check(processes, tmp_path, kills=50, people=60, records=400)


@pytest.mark.long
def test_killed_at_more_random_moments(processes, tmp_path):
    torment_and_check(processes, tmp_path, kills=200, people=300, records=2000)


@pytest.mark.slow
def test_killed_a_thousand_times(processes, tmp_path):
    torment_and_check(processes, tmp_path, kills=1000, people=1500, records=8000)


@pytest.mark.slow
def test_killed_hundreds_of_times_on_postgresql_which_is_killed_too(processes, server, tmp_path):
    stops = []

    def stop():
        server.stop("immediate")
        stops.append(1)
        server.start()

    url = server.new_database("kills")
    torment_and_check(processes, tmp_path, kills=300, people=500, records=3000, db=url, meanwhile=stop)
    print(f"the server was stopped {len(stops)} times")


def die_at_every_point_of_a_clerk(processes, folder, step, db=None, together=2):
    """With new people each time, so that there is something to do."""
    scene = Scene(folder, processes, people=400 // step, records=2000, db=db)

    def arguments(turn, point):
        some = scene.plan.people[together * turn : together * (turn + 1)]
        return scene.folder, scene.plan, scene.acknowledged, some, point, keys.KEYS_A_SHEET

    deaths = scene.die_at_points(torture.do_once, arguments, range(1, 10_000, step))
    scene.end()
    return deaths


@pytest.mark.long
def test_killed_at_points_of_what_a_clerk_does(processes, tmp_path, monkeypatch):
    monkeypatch.setattr(keys, "KEYS_A_SHEET", 2)
    assert die_at_every_point_of_a_clerk(processes, tmp_path, step=5) > 10


@pytest.mark.long
def test_killed_at_every_point_of_what_a_clerk_does(processes, tmp_path, monkeypatch):
    monkeypatch.setattr(keys, "KEYS_A_SHEET", 2)
    deaths = die_at_every_point_of_a_clerk(processes, tmp_path, step=1)
    print(f"{deaths} points")
    assert deaths > 60


def die_at_every_point_of_an_apply(processes, folder, step, db=None):
    """What could not be applied waits for the next one, and a few people come new each time."""
    scene = Scene(folder, processes, people=600 // step, records=2000, db=db)
    ledger, together = Ledger.open(scene.folder), 3
    clerk = torture.Clerk(ledger, scene.plan, scene.acknowledged)

    def arguments(turn, point):
        for person in scene.plan.people[together * turn : together * (turn + 1)]:
            clerk.step(person)
        return scene.folder, scene.served, point

    deaths = scene.die_at_points(torture.apply_once, arguments, range(1, 10_000, step))
    ledger.close()
    scene.end()
    return deaths


@pytest.mark.long
def test_killed_at_points_of_an_apply(processes, tmp_path):
    assert die_at_every_point_of_an_apply(processes, tmp_path, step=4) > 15


@pytest.mark.slow
def test_killed_at_every_point_of_an_apply(processes, tmp_path):
    deaths = die_at_every_point_of_an_apply(processes, tmp_path, step=1)
    print(f"{deaths} points")
    assert deaths > 60


@pytest.mark.slow
def test_killed_at_every_point_on_postgresql(processes, server, tmp_path, monkeypatch):
    monkeypatch.setattr(keys, "KEYS_A_SHEET", 2)
    for name, die in (("clerk", die_at_every_point_of_a_clerk), ("apply", die_at_every_point_of_an_apply)):
        (tmp_path / name).mkdir()
        deaths = die(processes, tmp_path / name, step=1, db=server.new_database(name))
        print(f"{name}: {deaths} points")
        assert deaths > 50
