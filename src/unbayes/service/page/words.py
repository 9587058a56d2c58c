"""Words for what the ledger has, as people say them."""

import datetime
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from unbayes.ledger.contents import Contents
from unbayes.ledger.entities import Model, Request, Version
from unbayes.ledger.events import EventKind
from unbayes.ledger.report_page import day, error_sentence, headline, number
from unbayes.ledger.states import RequestState
from unbayes.ledger.tokens import Scope


class Word(NamedTuple):
    """How something is called, what it means, and how it is marked: by a sign as well as by a colour."""

    short: str
    long: str
    tone: str
    sign: str


STATES = {
    RequestState.RECEIVED: Word("to decide", "It waits for somebody to approve or to deny it.", "wait", "○"),
    RequestState.APPROVED: Word("approved", "The next apply takes its records out.", "go", "◐"),
    RequestState.NEEDS_RETRAIN: Word(
        "needs retraining", "It waits for a model that was trained anew.", "bad", "▲"
    ),
    RequestState.APPLIED: Word("taken out", "Its records are out; its report is being signed.", "go", "◕"),
    RequestState.REPORTED: Word("reported", "Its report is signed; its rows are being destroyed.", "go", "◕"),
    RequestState.CLOSED: Word(
        "done", "Its records are out, its report is signed, and its rows are gone.", "good", "●"
    ),
    RequestState.DENIED: Word("denied", "It was not carried out, on a ground.", "plain", "✕"),
    RequestState.WITHDRAWN: Word("withdrawn", "Whoever asked took it back.", "plain", "↩"),
}
VERDICTS = {
    "trusted": Word("trusted", "Nothing speaks against this version.", "good", "✓"),
    "doubtful": Word("doubtful", "This version may be off, for the reasons below.", "warn", "!"),
    "retrain": Word("retrain", "This version should not be used; the model must be retrained.", "bad", "▲"),
}
BASE = Word("trained", "It was trained, and nothing was taken out of it.", "plain", "◆")
HELD = Word("on hold", "It is approved, and something holds it back.", "warn", "‖")
EVENTS = {
    EventKind.LEDGER_CREATED: "The ledger was created",
    EventKind.MODEL_REGISTERED: "A model was registered",
    EventKind.REQUEST_RECEIVED: "Received",
    EventKind.REQUEST_APPROVED: "Approved",
    EventKind.REQUEST_DENIED: "Denied",
    EventKind.REQUEST_WITHDRAWN: "Withdrawn",
    EventKind.REQUEST_EXTENDED: "Due date put off",
    EventKind.REQUEST_HELD: "Put on hold",
    EventKind.REQUEST_RELEASED: "Released",
    EventKind.VERSION_APPLIED: "A new version was made",
    EventKind.REQUEST_APPLIED: "Records taken out",
    EventKind.NEEDS_RETRAIN: "Found to need retraining",
    EventKind.REPORT_ISSUED: "Report signed",
    EventKind.REQUEST_CLOSED: "Closed: rows and their key are destroyed",
    EventKind.MODEL_REBASED: "The model has a new base",
    EventKind.BASE_SHREDDED: "The old base was destroyed",
    EventKind.TOKEN_CREATED: "A token was made",
    EventKind.TOKEN_REVOKED: "A token was revoked",
    EventKind.HOOK_ADDED: "A webhook was added",
    EventKind.HOOK_REMOVED: "A webhook was removed",
}
SCOPES = {
    Scope.SUBMIT: "submit requests, and see your own",
    Scope.APPROVE: "see all requests, and decide on them",
    Scope.OPERATE: "see models and requests, and apply what waits",
    Scope.AUDIT: "see everything, and change nothing",
    Scope.ADMIN: "make and revoke tokens",
    Scope.PREDICT: "load the current version of a model",
}
# What a page says after a form was carried out: addresses name it, and can say nothing else.
DONE = {
    "submitted": "The request was received.",
    "known": "This request was submitted before; here it is.",
    "approved": "The request was approved.",
    "denied": "The request was denied, and its rows were destroyed.",
    "extended": "The due date was put off.",
    "withdrawn": "The request was withdrawn, and its rows were destroyed.",
    "wanted": "What waits is applied as soon as the worker gets to it.",
    "applied": "Finished: what could be applied is applied.",
    "signed": "A checkpoint of the log was signed.",
}
SOON_DAYS = 7
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def state(request: Request) -> Word:
    """Where a request stands."""
    is_held = request.state is RequestState.APPROVED and request.hold is not None
    return HELD if is_held else STATES[request.state]


def verdict(version: Version) -> Word:
    """What was said of a version."""
    return BASE if version.verdict is None else VERDICTS[version.verdict]


def due_tone(request: Request, today: datetime.date) -> str:
    """How a due date is marked: late, soon or plain."""
    left = request.days_left(today)
    if left is None:
        return "plain"
    return "late" if left < 0 else "soon" if left <= SOON_DAYS else "plain"


def due_words(request: Request, today: datetime.date) -> str:
    """How far off the due date is; empty where nothing is left to do."""
    left = request.days_left(today)
    return "" if left is None else days_words(left)


def days_words(left: int) -> str:
    """A number of days until something is due."""
    if left < 0:
        return f"overdue by {count(-left, 'day')}"
    return "due today" if left == 0 else "due tomorrow" if left == 1 else f"in {left:,} days"


def count(n: int, one: str, many: str | None = None) -> str:
    """A number with its noun."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def sentence(text: str) -> str:
    """A refusal as a sentence by itself."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", "…")) else ".")


def moment(text: str) -> str:
    """A time to the minute."""
    return f"{day(text)}, {text[11:16]} UTC" if len(text) > 10 else day(text)


def short_day(text: str) -> str:
    """A day that is read at a glance."""
    year, month, date = text[:10].split("-")
    return f"{int(date)} {MONTHS[int(month) - 1]} {year}"


def segment(text: str) -> str:
    """A name as a part of an address."""
    return urllib.parse.quote(text, safe="")


def rebase_date(model: Model, base: Version) -> datetime.date:
    """By when the base of a model should be replaced by one that was trained anew."""
    made = datetime.date.fromisoformat(base.created[:10])
    return made + datetime.timedelta(days=model.settings.rebase_days)


def report_headline(contents: Contents) -> str:
    """What a report says was done."""
    return headline(contents)


def report_error(contents: Contents) -> str:
    """What a report says of the error, which is known."""
    assert contents.predicted_error is not None
    return error_sentence(contents.predicted_error)


def range_of(error: Mapping[str, Any]) -> str:
    """A predicted error with its range."""
    if not error["nats"] and not error["high"]:
        return "0, exact"
    return f"{number(error['nats'])} ({number(error['low'])} to {number(error['high'])})"


def policy(text: str) -> str:
    """When the worker applies what waits, in words."""
    if text == "now":
        return "at once"
    if text.startswith("due-in "):
        days = int(text.removeprefix("due-in ").removesuffix("d"))
        return f"{count(days, 'day')} before the first of them is due"
    wanted = int(text.removeprefix("every ").partition(" ")[0])
    return f"once there are {wanted:,}, or seven days before the first of them is due"


def residue(model: Model, versions: list[Version]) -> list[tuple[str, str]]:
    """What the ledger still keeps that knows erased records, and until when."""
    current = next(each for each in versions if each.number == model.head)
    base = next(each for each in versions if each.number == current.base)
    if base.number == current.number:
        return []
    until = f"The model is trained anew, planned by {day(rebase_date(model, base).isoformat())}"
    taken = count(current.erased, "record")
    return [
        (
            f"The base, version {base.number}, was trained with the {taken} that were taken out since, and "
            "still knows them. It lies sealed in the ledger, and is never handed out.",
            until,
        ),
        (f"One sealed sum of what these {taken} had told the base. The parts of it are destroyed.", until),
        ("Keyed digests of the records’ identifiers, so that later training leaves them out.", "Kept"),
    ]


FILTERS: Mapping[str, Callable[..., Any]] = {
    "day": day,
    "short_day": short_day,
    "moment": moment,
    "number": number,
    "count": count,
    "segment": segment,
    "due_tone": due_tone,
    "due_words": due_words,
}
