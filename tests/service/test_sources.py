"""Looking records up by the person."""

import io
import json

import numpy as np
import pytest
from pyarrow import dataset, parquet

from service.serving import caller, serving
from service.test_tables import COLUMNS, as_csv, as_parquet, table
from unbayes.ledger import Lookup
from unbayes.service import ServiceSettings
from unbayes.service.logs import json_log
from unbayes.service.problems import Problem
from unbayes.service.sources import Finder

MANY = "/v1/models/m/requests/many"


def one_parquet(value, folder):
    (folder / "rows.parquet").write_bytes(as_parquet(value))
    return folder / "rows.parquet"


def one_csv(value, folder):
    (folder / "rows.csv").write_bytes(as_csv(value))
    return folder / "rows.csv"


def partitioned(value, folder):
    dataset.write_dataset(value, folder, format="parquet", partitioning=["who"], partitioning_flavor="hive")
    return str(folder)


def an_address(value, folder):
    return one_parquet(value, folder).as_uri()


@pytest.fixture(params=[one_parquet, one_csv, partitioned, an_address])
def source(request, tmp_path):
    return Lookup(request.param(table(), tmp_path), "who")


def find(source, who):
    return Finder(source, COLUMNS, [who]).find(who)


def test_a_person_is_found_in_the_source(source):
    records = find(source, "person 1")
    assert records.ids == ("r1", "r4")
    value = table()
    np.testing.assert_allclose(records.numbers[:, 2], value.column("y").to_numpy()[[1, 4]])


def test_nobody_is_found_who_is_not_there(source):
    for who in ("person 9", "", "1"):
        with pytest.raises(Problem, match="no records of this person") as refused:
            find(source, who)
        assert refused.value.status == 404


def test_people_may_be_numbers(tmp_path):
    source = Lookup(one_parquet(table(who=[7, 8, 7, 9, 9, 9, 9]), tmp_path), "who")
    assert find(source, "7").ids == ("r0", "r2")
    for who in ("07", "7.0", "10", "9" * 40, "9" * 5000, "٧"):
        with pytest.raises(Problem, match="no records"):
            find(source, who)


def test_a_source_is_read_once_however_many_people_are_looked_for(ledger, setting, tmp_path, monkeypatch):
    lines = [f"person {i},record-{i},{setting.x[i, 0]},{setting.x[i, 1]},{setting.y[i]}" for i in range(20)]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(["who,id,a,b,y", *lines, ""]))
    asked, find = [], Lookup.find

    def counted(self, people, columns):
        asked.append(list(people))
        return find(self, people, columns)

    monkeypatch.setattr(Lookup, "find", counted)
    with (
        serving(ledger, ServiceSettings(sources={"m": Lookup(path, "who")})) as address,
        caller(address, ledger, "submit") as client,
    ):
        own = {"subject": "own", "ids": ["record-30"], "inputs": [[1.0, 2.0]], "targets": [0.5]}
        people = [{"subject": f"person {i}"} for i in range(20)]
        answer = client.post(MANY, json={"requests": [*people, own]})
        assert (answer.status_code, answer.json()["new"]) == (201, 21)
        assert client.post(MANY, json={"requests": [*people, {"subject": "nobody"}]}).status_code == 404
        assert client.post(MANY, json={"requests": [own]}).status_code == 201
    everybody = [each["subject"] for each in people]
    assert asked == [everybody, [*everybody, "nobody"]]
    assert len(ledger.requests()) == 22


def broken(value):
    return value.drop_columns(["b"])


def secret_cells(value):
    return value.set_column(value.column_names.index("b"), "b", [["secret"] * len(value)])


def gaps(value):
    return value.set_column(value.column_names.index("a"), "a", [[None] * len(value)])


@pytest.mark.parametrize("change", [broken, secret_cells, gaps, None])
def test_callers_are_not_told_what_is_wrong_with_the_data(ledger, tmp_path, change):
    """Nor what they look like, or where they are: that is for whoever operates the service."""
    folder, said = tmp_path / "hidden", io.StringIO()
    folder.mkdir()
    if change is not None:
        parquet.write_table(change(table()), folder / "rows.parquet")
    source = Lookup(str(folder / "rows.parquet"), "who")
    with (
        serving(ledger, ServiceSettings(sources={"m": source}), log=json_log(said)) as address,
        caller(address, ledger, "submit") as client,
    ):
        answer = client.post("/v1/models/m/requests", json={"subject": "person 1"})
        assert answer.status_code == 503
        assert "the data source of this model cannot be read" in answer.json()["detail"]
    for text in (answer.text, said.getvalue()):
        assert not [each for each in ("hidden", "secret", "person 1", "column") if each in text]
    assert json.loads(said.getvalue().splitlines()[-1])["status"] == 503
    assert not ledger.requests()
