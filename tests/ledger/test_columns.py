"""Columns that training encoded: requests are encoded likewise, wherever their records come from."""

import json

import numpy as np
import pytest

import unbayes as ub
from ledger.setting import KEY, require_equal
from unbayes.ledger import Ledger, LedgerError, Lookup

pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
from pyarrow import csv, parquet  # noqa: E402

ROWS = 80


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "id": [f"r{row}" for row in range(ROWS)],
            "who": [f"p{row % 9}" for row in range(ROWS)],
            "zone": rng.choice(["eu", "us"], ROWS),
            "age": rng.normal(50, 9, ROWS),
            "y": rng.normal(size=ROWS),
        }
    )


def trained(table, columns):
    model = ub.linear_regression(columns.width, prior_scale=3.0, noise_scale=0.5)
    return model, ub.fit(model, ub.scan(table, columns=columns, ids="id"), key=KEY)


def save(path, model, fitted, columns):
    ub.save(path, fitted.posterior, model, memory=fitted.memory, columns=columns)
    return path


@pytest.mark.parametrize("write", [csv.write_csv, parquet.write_table])
def test_a_request_takes_out_what_training_put_in(write, table, tmp_path):
    columns = ub.Columns.of(table.drop_columns("who"), target="y", ids="id")
    model, fitted = trained(table, columns)
    place = tmp_path / ("all.csv" if write is csv.write_csv else "all.parquet")
    write(table, place)
    is_mine = np.array([who == "p4" for who in table["who"].to_pylist()])
    write(table.filter(is_mine), tmp_path / "mine")
    _, remaining = trained(table.filter(~is_mine), columns)
    ledger = Ledger.create(tmp_path / "ledger")
    version = ledger.register("m", save(tmp_path / "m.unbayes", model, fitted, columns), ids="id")
    assert version.findings["caveats"] == list(columns.caveats)
    looked_up = ledger.request("m", subject="p4", rows=Lookup(place, "who"))
    assert looked_up.asked == is_mine.sum()
    ledger.withdraw(looked_up.id)
    ledger.approve(ledger.request("m", subject="p4", rows=tmp_path / "mine").id)
    ledger.apply("m")
    ledger.serve_model("m", tmp_path / "now.unbayes")
    now = ub.load(tmp_path / "now.unbayes")
    require_equal(now.posterior, remaining.posterior)
    assert (now.columns, now.memory) == (columns, None)


def test_a_new_base_encodes_its_columns_as_the_old(table, tmp_path):
    columns = ub.Columns.of(table.drop_columns("who"), target="y", ids="id")
    file = save(tmp_path / "m.unbayes", *trained(table, columns), columns)
    ledger = Ledger.create(tmp_path / "ledger")
    ledger.register("m", file, ids="id")
    half = table.slice(0, 40)
    others = ub.Columns.of(half.drop_columns("who"), target="y", ids="id")
    with pytest.raises(LedgerError, match="must encode its columns as m does"):
        ledger.rebase("m", save(tmp_path / "other.unbayes", *trained(half, others), others))
    assert ledger.rebase("m", save(tmp_path / "new.unbayes", *trained(half, columns), columns)).number == 2
    assert json.dumps(ledger.model("m").columns.to_json())
