"""The ledger: models and erasure requests, from submission to a report."""

import contextlib
import datetime
import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from unbayes.data.refusal import reason
from unbayes.data.scan import Scan
from unbayes.ledger import applying, bases, figures, intake, issuing, kept, log, suppression, upkeep
from unbayes.ledger.applying import Applied
from unbayes.ledger.clock import Clock, utc_now
from unbayes.ledger.database import Database
from unbayes.ledger.desk import Desk
from unbayes.ledger.entities import Model, ModelSettings, Request, Version
from unbayes.ledger.errors import Conflict, LedgerError, NoLedger, NotFound
from unbayes.ledger.events import EventKind
from unbayes.ledger.figures import Statistics
from unbayes.ledger.hooks import Hooks
from unbayes.ledger.intake import Submission
from unbayes.ledger.keys import Keys
from unbayes.ledger.log import Happening, LogState
from unbayes.ledger.lookup import Lookup, records_of
from unbayes.ledger.policy import read_policy
from unbayes.ledger.reading_log import Log
from unbayes.ledger.records import Records
from unbayes.ledger.signing import PublicKey
from unbayes.ledger.states import WAITING, RequestState
from unbayes.ledger.store import Store
from unbayes.ledger.suppression import Suppression
from unbayes.ledger.tokens import Tokens
from unbayes.ledger.upkeep import ADDRESS

DATABASE, KEYS = "ledger.sqlite", "keys"


class Ledger:
    """Models and erasure requests; `create` makes one in a folder, `open` opens it.

    A folder has the keys and, unless PostgreSQL has it, the database. Use it as a context manager, or `close`
    it. Everything that changes something takes effect whole or not at all, and a request takes effect once.
    """

    def __init__(self, desk: Desk):
        self._desk, self._log = desk, Log(desk)

    @classmethod
    def create(cls, folder: str | os.PathLike[str], *, db: str | None = None, clock: Clock = utc_now) -> Self:
        """A new ledger in a folder that is empty or not there yet.

        Parameters
        ----------
        folder
            Where the keys are kept and, without `db`, the database.
        db
            A database, such as ``postgresql://user@host/name``; None for SQLite in the folder.
        clock
            Tells the time.
        """
        place = Path(folder)
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            if any(place.iterdir()):
                raise Conflict(f"{place} must be an empty folder, but there is something in it")
            with _removing(place):
                return cls(_make(place, db, clock))
        except OSError as error:
            raise LedgerError(f"no ledger can be made in {place}: {reason(error)}") from error

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, clock: Clock = utc_now) -> Self:
        """The ledger in a folder."""
        place = Path(folder)
        if not (place / KEYS).is_dir():
            raise NoLedger(f"there is no ledger in {place}; unbayes init makes one")
        return cls(Desk(Database.open(_address(place)), Keys.open(place / KEYS), clock))

    def close(self) -> None:
        """Let go of the database."""
        self._desk.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def public_key(self) -> PublicKey:
        """By which reports and checkpoints are checked; hand it out."""
        return self._desk.keys.signing.public

    @property
    def today(self) -> datetime.date:
        """Today's date, UTC."""
        return self._desk.today

    @property
    def tokens(self) -> Tokens:
        """Who may use the service, and for what."""
        return Tokens(self._desk)

    @property
    def hooks(self) -> Hooks:
        """Who is told of events."""
        return Hooks(self._desk)

    @property
    def log(self) -> Log:
        """What has happened, as others read and check it."""
        return self._log

    # Models

    def register(
        self,
        name: str,
        file: str | os.PathLike[str],
        *,
        ids: str,
        inputs: Sequence[str] | None = None,
        target: str | None = None,
        settings: ModelSettings | None = None,
        progress: Any = None,
    ) -> Version:
        """Make a trained model version 1 of a name.

        Parameters
        ----------
        name
            What the model is called.
        file
            What `unbayes.save` wrote, with its memory.
        ids
            The column that names each record, once, in the tables of requests.
        inputs, target
            The columns of the model; those that the notes of the file name unless given.
        settings
            Tolerance, policy, rule of deadlines.
        progress
            A `ProgressBar()`, say.
        """
        named = {"ids": ids, "inputs": inputs, "target": target}
        bases.register(self._desk, name, Path(file), **named, settings=settings, progress=progress)
        return self.current(name)

    def models(self) -> list[Model]:
        """All models."""
        with self._desk.reading() as store:
            return store.models()

    def model(self, name: str) -> Model:
        """A model by its name."""
        with self._desk.reading() as store:
            return store.model(name)

    def versions(self, name: str) -> list[Version]:
        """All versions of a model, the first first."""
        with self._desk.reading() as store:
            return store.versions(store.model(name))

    def current(self, name: str) -> Version:
        """The version that production should load."""
        with self._desk.reading() as store:
            model = store.model(name)
            return store.version(model, model.head)

    def serve_model(self, name: str, out: str | os.PathLike[str]) -> Version:
        """Write the current version to a file: belief and model, never the base's memory."""
        return bases.serve_model(self._desk, name, Path(out))

    def current_file(self, name: str) -> tuple[Version, bytes]:
        """The current version, and what `serve_model` would write."""
        return bases.current_file(self._desk, name)

    def rebase(self, name: str, file: str | os.PathLike[str], *, progress: Any = None) -> Version:
        """Start afresh from a model that was trained anew without `suppressed`; destroy the old base."""
        version = bases.rebase(self._desk, name, Path(file), progress)
        issuing.finish(self._desk, progress)
        return version

    def refine(self, name: str, remaining: str | os.PathLike[str], *, progress: Any = None) -> Version:
        """Train the current version on with the remaining records: a new base; destroy the old one."""
        version = bases.refine(self._desk, name, Path(remaining), progress)
        issuing.finish(self._desk, progress)
        return version

    def suppressed(self, name: str) -> Suppression:
        """Whom the next training of a model has to leave out."""
        return suppression.suppressed(self._desk, name)

    # Requests

    def request(
        self,
        model: str,
        *,
        subject: str,
        rows: Records | Lookup | Scan | str | os.PathLike[str],
        reference: str | None = None,
        due: datetime.date | None = None,
        client: str = "python",
        idempotency_key: str | None = None,
        missing: str = "refuse",
    ) -> Request:
        """Take in one person's request, as `Submission` has it.

        The rows may be in a table on disk or a scan, all of them this person's. A `Lookup` finds them.
        """
        place = Path(rows) if isinstance(rows, str | os.PathLike) else rows
        records = records_of(place, subject, self.model(model).columns)
        submission = Submission(subject, records, reference, due, client, idempotency_key, missing)
        return self.show(self.request_many(model, [submission])[0])

    def request_many(self, model: str, submissions: Sequence[Submission]) -> list[int]:
        """Take in many requests in one transaction, all or none; their numbers."""
        return [number for number, _ in self.take_in(model, submissions)]

    def take_in(self, model: str, submissions: Sequence[Submission]) -> list[tuple[int, bool]]:
        """The same, with whether each was new, or known by its idempotency key."""
        return intake.submit(self._desk, model, submissions)

    def show(self, number: int) -> Request:
        """A request by its number."""
        with self._desk.reading() as store:
            return store.request(number)

    def requests(
        self,
        model: str | None = None,
        *,
        states: Sequence[RequestState] | None = None,
        overdue: bool = False,
        subject: str | None = None,
        client: str | None = None,
        limit: int | None = 100,
        after: int | None = None,
        by_due: bool = False,
    ) -> list[Request]:
        """Requests, the newest or the most urgent first; `after` continues a listing below that number."""
        person = None if subject is None else self._desk.keys.digest("subject", subject)
        with self._desk.reading() as store:
            return store.requests(
                model=model,
                states=states,
                overdue_on=self.today if overdue else None,
                subject=person,
                client=client,
                after=after,
                limit=limit,
                by_due=by_due,
            )

    def number_by_state(self, model: str | None = None) -> dict[RequestState, int]:
        """How many requests there are in each state."""
        with self._desk.reading() as store:
            return store.number_by_state(None if model is None else store.model(model))

    def statistics(
        self, since: datetime.date | None = None, until: datetime.date | None = None
    ) -> Statistics:
        """How many requests were received from one day to another, and how long their answers took."""
        return figures.figures(self._desk, since, until)

    def approve(self, number: int, *, missing: str | None = None, by: str | None = None) -> Request:
        """Let a request be carried out, or release it; `missing` "skip" leaves unknown records out.

        Here and below, `by` says who decides; the log commits to it.
        """
        intake.approve(self._desk, number, missing, by)
        return self.show(number)

    def deny(self, number: int, ground: str, *, by: str | None = None) -> Request:
        """Refuse a request, on a ground."""
        intake.deny(self._desk, number, ground, by)
        return self.show(number)

    def withdraw(self, number: int, *, by: str | None = None) -> Request:
        """Take a request back for whoever asked."""
        intake.withdraw(self._desk, number, by)
        return self.show(number)

    def extend(self, number: int, *, days: int, reason: str, by: str | None = None) -> Request:
        """Put the due date off, once, with a reason."""
        intake.extend(self._desk, number, days, reason, by)
        return self.show(number)

    # Work

    def apply(self, model: str, *, when: str = "now", progress: Any = None) -> Applied:
        """Take the records of all approved requests out of a model, if it is time to."""
        if when != "now" and not self.is_time(model, when):
            return Applied(model, self.current(model).number)
        return applying.apply(self._desk, model, progress)

    def want(self, model: str) -> str:
        """Ask for what waits to be applied as soon as possible, by whoever does that; when it was asked."""
        with self._desk.writing() as store:
            store.want(store.model(model))
            return store.now

    def is_time(self, model: str, when: str | None = None) -> bool:
        """Whether to apply what waits now: it is wanted, or by a policy; None for the model's own."""
        with self._desk.reading() as store:
            found = store.model(model)
            policy = found.settings.policy if when is None else read_policy(when)
            if found.wanted is not None:
                return True
            waiting = store.requests(model=model, states=[RequestState.APPROVED], by_due=True)
        free = [request for request in waiting if request.hold is None]
        return policy.is_time(len(free), free[0].due_date if free else None, self.today)

    def finish(self) -> int:
        """What is left to do for applied requests: keys, reports; how many requests were closed."""
        return issuing.finish(self._desk)

    def report(self, number: int) -> bytes:
        """The signed report on a request."""
        with self._desk.reading() as store:
            request, body = store.request(number), store.report(number)
        if body is None:
            raise NotFound(f"there is no report on request {number} yet: it is {request.state}")
        return body

    # The log, and upkeep

    def checkpoint(self) -> str:
        """A signed statement of the log as it is now."""
        return self._log.sign().text

    def verify_log(self, checkpoints: Sequence[str] = (), *, progress: Any = None) -> LogState:
        """Read the whole log, and refuse it where something in it was changed.

        It must continue the signed `checkpoints` that were kept elsewhere, and the one beside the key.
        """
        return kept.verify_log(self._desk, checkpoints, progress)

    def overdue(self) -> int:
        """How many requests are overdue."""
        return len(self.requests(states=WAITING, overdue=True, limit=None))

    def next_due(self) -> datetime.date | None:
        """The day on which the most urgent request is due; None where none waits."""
        with self._desk.reading() as store:
            found = store.requests(states=WAITING, by_due=True, limit=1)
        return found[0].due_date if found else None

    def export(self, db: str, *, progress: Callable[[str], None] = lambda _: None) -> None:
        """Copy the whole ledger to an empty database, which the folder uses from then on."""
        upkeep.export(self._desk, db, progress)

    def gc(self) -> dict[str, int]:
        """Finish what was left undone, and forget what no longer has to be kept."""
        return upkeep.collect(self._desk)

    def doctor(self) -> list[upkeep.Finding]:
        """Look for what is wrong or needs attention."""
        return upkeep.examine(self._desk)


def _make(place: Path, db: str | None, clock: Clock) -> Desk:
    keys = Keys.create(place / KEYS)
    database = Database.open(db or f"sqlite:///{(place / DATABASE).absolute()}")
    with database.writing() as connection:
        store, name = Store(connection, clock()), secrets.token_hex(8)
        if store.has_settings():
            raise Conflict("db must be an empty database, but there is a ledger in it already")
        log.begin_log(connection, store.now)
        store.add_settings(ledger=name, origin=f"unbayes.dev/ledger/{name}")
        store.note(Happening(EventKind.LEDGER_CREATED))
        if db is not None:
            upkeep.write_address(place, db)
    return Desk(database, keys, clock)


@contextlib.contextmanager
def _removing(place: Path) -> Iterator[None]:
    """Empty a folder again where the block fails, so that it stands in nobody's way."""
    try:
        yield
    except BaseException:
        for path in place.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


def _address(place: Path) -> str:
    """The database of the ledger in a folder."""
    if (place / ADDRESS).exists():
        return (place / ADDRESS).read_text().strip()
    if not (place / DATABASE).exists():
        raise NoLedger(f"the database {place / DATABASE} is missing")
    return f"sqlite:///{(place / DATABASE).absolute()}"
