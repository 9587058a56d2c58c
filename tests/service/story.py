"""A year at a ledger: two models, versions without some people, and requests in every state."""

import datetime

import jax
import numpy as np

import unbayes as ub
from unbayes.ledger import ModelSettings, Records
from unbayes.ledger.tokens import Scope

KEY = jax.random.key(0)
TODAY = datetime.datetime(2026, 11, 18, 9, 30, tzinfo=datetime.UTC)
PEOPLE = 600
WEIGHTS = np.array([1.2, -0.8, 0.5, 0.0])
# Who asked when, before the model was trained anew and after it.
BEFORE = {
    "2026-02-03": range(2),
    "2026-03-11": range(2, 6),
    "2026-04-28": range(6, 13),
    "2026-05-19": range(13, 30),
}
AFTER = {
    "2026-07-02": range(30, 31),
    "2026-08-20": range(31, 40),
    "2026-09-24": range(40, 55),
    "2026-10-04": range(55, 80),
}
COLUMNS = ["income", "age", "balance", "tenure"]


class Clock:
    """A clock that is put to days, and goes on from there."""

    def __init__(self):
        self.put("2026-01-05")

    def __call__(self):
        self.now += datetime.timedelta(seconds=1)
        return self.now

    def put(self, day, hour=9):
        self.now = datetime.datetime.fromisoformat(f"{day}T{hour:02}:12:00+00:00")


class Customers:
    """Records of people, and a model of whether they pay back."""

    def __init__(self, folder, name, seed=0):
        rng = np.random.default_rng(seed)
        self.folder, self.name = folder, name
        self.x = rng.normal(size=(PEOPLE, len(COLUMNS)))
        self.y = (rng.random(PEOPLE) < 1 / (1 + np.exp(-self.x @ WEIGHTS))).astype(float)
        self.ids = np.array([f"customer-{i}" for i in range(PEOPLE)])

    def train(self, keep=None, **notes):
        keep = np.ones(PEOPLE, bool) if keep is None else keep
        model = ub.logistic_regression(len(COLUMNS), prior_scale=2.0)
        trained = ub.fit(model, (self.x[keep], self.y[keep]), ids=list(self.ids[keep]), key=KEY)
        path = self.folder / f"{self.name}.unbayes"
        notes = {"columns": COLUMNS, "target": "repaid", **notes}
        ub.save(path, trained.posterior, model, memory=trained.memory, notes=notes)
        return path

    def rows(self, *people):
        return Records.of_arrays(self.x[list(people)], self.y[list(people)], list(self.ids[list(people)]))

    def strangers(self, *people):
        return Records.of_arrays(
            self.x[list(people)] + 0.5, self.y[list(people)], [f"stranger-{i}" for i in people]
        )

    def csv(self, *people):
        lines = [
            ",".join([self.ids[i], *map(repr, map(float, self.x[i])), repr(float(self.y[i]))]) for i in people
        ]
        return "\n".join([",".join(["customer", *COLUMNS, "repaid"]), *lines]) + "\n"


def tell(ledger, clock, folder):
    """Let it happen; the customers of the two models."""
    credit, churn = Customers(folder, "credit-risk"), Customers(folder, "churn", seed=1)
    clock.put("2026-01-12")
    settings = ModelSettings(rebase_days=180)
    ledger.register("credit-risk", credit.train(), ids="customer", settings=settings)
    ask = Asking(ledger, clock)
    for day, people in BEFORE.items():
        ask.and_apply("credit-risk", day, credit, people)
    clock.put("2026-06-09")
    suppression = ledger.suppressed("credit-risk")
    anew = credit.train(suppression.keep(credit.ids), left_out=suppression.note)
    ledger.rebase("credit-risk", anew)
    for day, people in AFTER.items():
        if day > "2026-09-01" and len(ledger.models()) == 1:
            clock.put("2026-09-01")
            ledger.register("churn", churn.train(), ids="customer", settings=ModelSettings(when="every 50"))
        ask.and_apply("credit-risk", day, credit, people)
    ask.ask("credit-risk", "2026-10-13", credit.rows(80, 81))
    ask.and_apply("churn", "2026-10-20", churn, range(3))
    _now(ask, ledger, clock, credit, churn)
    return credit, churn


class Asking:
    """People ask, and somebody decides."""

    def __init__(self, ledger, clock):
        self.ledger, self.clock, self.number = ledger, clock, 4100

    def ask(self, model, day, records, **options):
        self.clock.put(day)
        self.number += 7
        return self.ledger.request(
            model,
            subject=f"person {self.number}",
            rows=records,
            reference=f"DSR-{self.number}",
            client="portal",
            **options,
        )

    def and_apply(self, model, day, customers, people):
        request = self.ask(model, day, customers.rows(*people))
        self.clock.put((datetime.date.fromisoformat(day) + datetime.timedelta(days=6)).isoformat(), 15)
        self.ledger.approve(request.id, by="dana (privacy)")
        self.clock.put((datetime.date.fromisoformat(day) + datetime.timedelta(days=8)).isoformat(), 3)
        self.ledger.apply(model)
        return request


def _now(ask, ledger, clock, credit, churn):
    """What stands on the day on which somebody looks."""
    large = ask.ask("credit-risk", "2026-11-01", credit.rows(*range(100, 560)))
    held = ask.ask("credit-risk", "2026-11-01", credit.strangers(5))
    for each in (large, held):
        ledger.approve(each.id, by="dana (privacy)")
    clock.put("2026-11-02", 3)
    ledger.apply("credit-risk")
    denied = ask.ask("churn", "2026-11-02", churn.rows(9))
    clock.put("2026-11-03")
    ledger.deny(
        denied.id,
        "A court has ordered that the account is kept until its case is closed.",
        by="dana (privacy)",
    )
    put_off = ask.ask("credit-risk", "2026-11-04", credit.rows(*range(562, 570)))
    clock.put("2026-11-06")
    ledger.extend(
        put_off.id,
        days=30,
        reason="The records have to be brought together from three archives first.",
        by="dana (privacy)",
    )
    withdrawn = ask.ask("churn", "2026-11-06", churn.rows(10))
    ledger.withdraw(withdrawn.id, by="portal")
    for day, people in [("2026-11-09", [571]), ("2026-11-12", [572, 573]), ("2026-11-16", [574])]:
        ready = ask.ask("credit-risk", day, credit.rows(*people))
        ledger.approve(ready.id, by="dana (privacy)")
    ask.ask("churn", "2026-11-16", churn.rows(20, 21, 22))
    ask.ask("credit-risk", "2026-11-17", credit.rows(590))
    clock.now = TODAY
    ledger.checkpoint()


def token(ledger, *scopes, name="dana (privacy)"):
    """What somebody shows who may do these things; of none, all but administration."""
    wanted = scopes or (Scope.SUBMIT, Scope.APPROVE, Scope.OPERATE, Scope.AUDIT)
    return ledger.tokens.create(name, wanted)[1]
