"""A small model whose ledger tells in closed form what must come of every request."""

import datetime

import jax
import numpy as np

import unbayes as ub
from unbayes.ledger import Records

RECORDS = 300
KEY = jax.random.key(0)
START = datetime.datetime(2026, 11, 18, 12, tzinfo=datetime.UTC)


class Setting:
    """A trained model, its records, and ledgers of it."""

    def __init__(self, folder):
        rng = np.random.default_rng(0)
        self.x = rng.normal(size=(RECORDS, 2))
        self.y = self.x @ [1.0, -2.0] + 0.3 * rng.normal(size=RECORDS)
        self.ids = [f"record-{i}" for i in range(RECORDS)]
        self.model = ub.linear_regression(2, prior_scale=3.0, noise_scale=0.3)
        self.trained = self.fit(np.ones(RECORDS, bool))
        self.file = folder / "model.unbayes"
        self.save(self.file, self.trained)

    def fit(self, keep):
        names = [name for name, kept in zip(self.ids, keep, strict=True) if kept]
        return ub.fit(self.model, (self.x[keep], self.y[keep]), ids=names, key=KEY)

    def save(self, path, trained, **notes):
        notes = {"columns": ["a", "b"], "target": "y", **notes}
        ub.save(path, trained.posterior, self.model, memory=trained.memory, notes=notes)

    def records(self, *rows):
        rows = list(rows)
        return Records.of_arrays(self.x[rows], self.y[rows], [self.ids[row] for row in rows])

    def without(self, *rows):
        rows, names = list(rows), [self.ids[row] for row in rows]
        erased, trained = (self.x[rows], self.y[rows]), self.trained
        return ub.unlearn(
            trained.posterior, self.model, erased, memory=trained.memory, ids=names, key=KEY
        ).posterior


class Clock:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = START

    def __call__(self):
        self.now += datetime.timedelta(milliseconds=1)
        return self.now


def ask(ledger, setting, *rows, approve=True, **options):
    records = setting.records(*rows)
    request = ledger.request("m", subject=f"person {rows[0]}", rows=records, **options)
    return ledger.approve(request.id) if approve else request


def current(ledger, tmp_path):
    ledger.serve_model("m", tmp_path / "current.unbayes")
    return ub.load(tmp_path / "current.unbayes").posterior


def require_equal(one, other):
    np.testing.assert_allclose(one.mean, other.mean, atol=1e-9)
    np.testing.assert_allclose(one.covariance, other.covariance, atol=1e-9)
