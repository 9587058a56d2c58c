"""`unbayes request`: records that are looked up where the operator keeps them."""

import json

import pytest
from typer.testing import CliRunner

from unbayes import cli
from unbayes.ledger import Ledger, Records

pa = pytest.importorskip("pyarrow")
from pyarrow import csv, dataset, parquet  # noqa: E402

LOOK_UP = ["request", "credit", "--person", "who", "--source"]


@pytest.fixture(scope="module")
def data(story):
    """All records, three of each person, who are called by numbers."""
    rows = range(len(story.ids))
    columns = {"customer": story.ids, "healed": story.y, "dose": story.x[:, 1], "age": story.x[:, 0]}
    return pa.table({**columns, "who": [row // 3 for row in rows]})


@pytest.fixture
def place(data, tmp_path):
    parquet.write_table(data, tmp_path / "people.parquet", row_group_size=50)
    return tmp_path / "people.parquet"


def requests(run):
    return sorted(json.loads(run("requests", "--json").stdout), key=lambda each: each["number"])


def test_one_person(run, story, place, tmp_path):
    run(*LOOK_UP, place, "--subject", "7", "--key", "k")
    run(*LOOK_UP, place, "--subject", "7", "--key", "k")
    assert [each["records"] for each in requests(run)] == [3]
    records = Records.of_arrays(story.x[21:24], story.y[21:24], story.ids[21:24])
    with Ledger.open(tmp_path / "ledger") as ledger:
        same = ledger.request("credit", subject="7", rows=records, idempotency_key="k", client="cli")
    assert same.id == 1
    run("approve", 1)
    run("apply", "credit")
    assert requests(run)[0]["erased"] == 3


def hive(data, tmp_path):
    place = tmp_path / "hive"
    dataset.write_dataset(data, place, format="parquet", partitioning=["who"], partitioning_flavor="hive")
    return place


def pattern(data, tmp_path):
    for part in range(4):
        csv.write_csv(data.slice(50 * part, 50), tmp_path / f"part{part}.csv")
    return tmp_path / "part*.csv"


def address(data, tmp_path):
    parquet.write_table(data, tmp_path / "people.parquet")
    return (tmp_path / "people.parquet").as_uri()


@pytest.mark.parametrize("write", [hive, pattern, address])
def test_several_people_wherever_they_are(run, data, tmp_path, write):
    source = write(data, tmp_path)
    run(*LOOK_UP, source, "--subject", "7", "--subject", "9", "--subject", "7", "--key", "k", "--approve")
    assert [(each["records"], each["state"]) for each in requests(run)] == [(3, "approved")] * 2
    with Ledger.open(tmp_path / "ledger") as ledger:
        assert [each.id for each in ledger.requests(subject="9")] == [2]


@pytest.mark.parametrize("is_input", [False, True])
def test_people_from_a_list(run, place, tmp_path, is_input):
    listed = "\ufeff7\r\n\n 9 \n7\n"
    if is_input:
        command = [*LOOK_UP, place, "--subjects", "-", "--ledger", tmp_path / "ledger"]
        done = CliRunner().invoke(cli.app, list(map(str, command)), input=listed.encode())
        assert done.exit_code == 0, done.output
    else:
        (tmp_path / "list.txt").write_text(listed)
        run(*LOOK_UP, place, "--subjects", tmp_path / "list.txt")
    assert [each["records"] for each in requests(run)] == [3, 3]


def test_nobody_is_found(run, place):
    said = run(*LOOK_UP, place, "--subject", "4711", code=2).stderr
    assert said == f"{place} has no records of this person: nothing was taken in\n"
    for more in ([], ["--found-only"]):
        some = ["--subject", "4711", "--subject", "4712"]
        said = run(*LOOK_UP, place, *some, *more, code=2).stderr
        assert "has no records of 2 of the 2 people (number 1, 2): nothing was taken in" in said
    assert requests(run) == []


def test_some_are_not_found(run, place, tmp_path):
    (tmp_path / "list.txt").write_text("".join(f"{who}\n" for who in (7, *range(100, 120), 9)))
    some = [*LOOK_UP, place, "--subjects", tmp_path / "list.txt", "--key", "k"]
    said = run(*some, code=2).stderr
    assert "of 20 of the 22 people (number 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, …): nothing was taken in" in said
    assert "100" not in said
    assert requests(run) == []
    assert "they are left out" in run(*some, "--found-only").stderr
    run(*some, "--found-only")
    assert len(requests(run)) == 2


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ([], "either --rows or --source"),
        (["--rows", "r.csv", "--source", "s", "--subject", "a"], "either --rows or --source"),
        (["--rows", "r.csv", "--person", "who", "--subject", "a"], "belong to --source"),
        (["--rows", "r.csv", "--subjects", "list.txt"], "belong to --source"),
        (["--rows", "r.csv", "--found-only", "--by", "who"], "belong to --source"),
        (["--rows", "r.csv", "--subject", "a", "--subject", "b"], "either --subject or --by"),
        (["--rows", "r.csv", "--subject", "a", "--by", "who"], "either --subject or --by"),
        (["--source", "s", "--subject", "a"], "--source needs --person"),
        (["--source", "s", "--person", "who"], "either --subject or --subjects"),
        (["--source", "s", "--by", "who"], "--by belongs to --rows"),
        (["--source", "s", "--person", "who", "--subject", "a", "--subjects", "l"], "or --subjects"),
        (["--source", "nowhere.parquet", "--person", "who", "--subject", "a"], "there is no such file"),
        (["--source", "people.parquet", "--person", "whose", "--subject", "7"], "have no whose"),
        (["--source", "people.parquet", "--person", "who", "--subjects", "none"], "none cannot be read"),
        (["--source", "people.parquet", "--person", "who", "--subjects", "empty"], "but is empty"),
        (["--source", "people.parquet", "--person", "who", "--subjects", "people.parquet"], "text in UTF-8"),
    ],
)
def test_what_does_not_go_together(run, place, tmp_path, monkeypatch, options, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").write_text("\n \n")
    said = run("request", "credit", *options, code=2).stderr
    assert sentence in said
    assert len(said.splitlines()) == 1
    assert requests(run) == []
