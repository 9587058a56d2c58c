"""The ledger by its commands: the whole story, and what is refused."""

import json
import os
import subprocess
import sys
import time

import pytest

import unbayes as ub
from cli.helpers import same, start
from cli.story import ROWS
from ledger.receiving import Receiver
from problems import KEY
from unbayes.ledger import Ledger, RequestState


def listed(run):
    return {each["number"]: each for each in json.loads(run("requests", "--json").stdout)}


def test_the_whole_story(run, unbayes, story, tmp_path):
    ask = ["request", "credit", "--subject", "4711", "--rows", story.table(0, 1), "--key", "web-1"]
    run(*ask)
    run(*ask)
    run("request", "credit", "--subject", "4712", "--rows", story.table(1, 2), "--reference", "TICKET-9")
    run("request", "credit", "--subject", "4713", "--rows", story.table(3))
    assert {each["state"] for each in listed(run).values()} == {"received"}
    run("approve", 1, 2)
    run("extend", 2, "--days", 60, "--reason", "many requests")
    run("withdraw", 3)
    assert "version 2 is without 3 records of 2 requests: trusted" in run("apply", "credit").stdout
    found = listed(run)
    assert [found[n]["state"] for n in (1, 2, 3)] == ["closed", "closed", "withdrawn"]
    assert [found[2][name] for name in ("erased", "already", "verdict")] == [1, 1, "trusted"]

    run("serve-model", "credit", "--out", tmp_path / "current.unbayes")
    gone = (story.x[:3], story.y[:3])
    expected = ub.unlearn(
        story.trained.posterior, story.model, gone, memory=story.trained.memory, ids=story.ids[:3], key=KEY
    )
    assert same(ub.load(tmp_path / "current.unbayes").posterior, expected.posterior)

    report, page = tmp_path / "report.json", tmp_path / "report.html"
    run("report", 1, "--out", report)
    run("report", 1, "--out", page, "--html")
    assert page.read_text().lower().startswith("<!doctype html>")
    key = tmp_path / "ledger" / "keys" / "public.pem"
    done = unbayes("verify", report, "--key", key, "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["records"]["erased"] == 2
    assert json.loads(done.stdout)["predicted_error"]["high"] >= 0
    said = unbayes("verify", report).stdout
    assert "compare it with the published one" in said
    assert "nats from retraining" in said
    report.write_bytes(report.read_bytes().replace(b'"index": ', b'"index": 1', 1))
    assert unbayes("verify", report, "--key", key).exit_code == 1

    run("log", "verify")
    run("log", "checkpoint")
    run("doctor")
    run("gc")
    assert "destroyed" not in run("versions", "credit").stdout
    assert len(json.loads(run("suppressed", "credit", "--json").stdout)["records"]) == 4


def test_a_key_that_did_not_sign(run, unbayes, story, tmp_path):
    run("request", "credit", "--subject", "a", "--rows", story.table(5), "--approve")
    run("apply", "credit")
    run("report", 1, "--out", tmp_path / "report.json")
    assert unbayes("init", "--ledger", tmp_path / "other").exit_code == 0
    other = tmp_path / "other" / "keys" / "public.pem"
    assert unbayes("verify", tmp_path / "report.json", "--key", other).exit_code == 1


def test_checkpoints_that_were_given_away(run, unbayes, tmp_path):
    assert "there is no checkpoint outside" in run("log", "verify").stdout
    given = tmp_path / "given.txt"
    given.write_text(run("log", "checkpoint").stdout, encoding="utf-8")
    (tmp_path / "ledger" / "keys" / "checkpoint").unlink()
    done = run("log", "verify", "--checkpoint", given, "--checkpoint", given)
    assert "it continues 2 checkpoints from outside, the newest over 2 events" in done.stdout
    assert json.loads(run("log", "verify", "--checkpoint", given, "--json").stdout)["covered"] == 2
    given.write_text(given.read_text(encoding="utf-8").replace("\n2\n", "\n1\n"), encoding="utf-8")
    assert run("log", "verify", "--checkpoint", given, code=1).stderr.count("\n") == 1
    run("log", "verify", "--checkpoint", tmp_path / "nowhere", code=2)
    assert unbayes("init", "--ledger", tmp_path / "other").exit_code == 0
    given.write_text(unbayes("log", "checkpoint", "--ledger", tmp_path / "other").stdout, encoding="utf-8")
    assert "not signed by the key" in run("log", "verify", "--checkpoint", given, code=1).stderr


def test_many_people_from_one_table_and_a_filter(run, story, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    run("request", "credit", "--by", "person", "--rows", story.table(*range(10)), "--approve")
    assert sorted(each["records"] for each in listed(run).values()) == [1, 1, 1, 1, 2, 2, 2]
    pq.write_table(pa.table({"customer": story.ids, "healed": story.y}), tmp_path / "all.parquet")
    run("suppressed", "credit", "--filter", tmp_path / "all.parquet", "--out", tmp_path / "kept.parquet")
    assert pq.read_table(tmp_path / "kept.parquet").column("customer").to_pylist() == story.ids[10:]


def test_the_worker_applies_when_it_is_time(run, story):
    run("request", "credit", "--subject", "a", "--rows", story.table(5), "--approve")
    assert run("worker", "--once").stdout == ""
    run("request", "credit", "--subject", "b", "--rows", story.table(6), "--approve", "--due", "2020-01-01")
    run("requests", "--overdue", code=12)
    assert "2 requests" in run("worker", "--once").stdout
    run("requests", "--overdue")


def test_a_request_that_is_denied(run, story):
    run("request", "credit", "--subject", "a", "--rows", story.table(5))
    assert "request 1 on credit: denied" in run("deny", 1, "--ground", "not a customer").stdout
    assert listed(run)[1]["state"] == "denied"
    assert "it can become nothing" in run("deny", 1, "--ground", "again", code=2).stderr
    assert "ground must say why" in run("deny", 1, "--ground", " ", code=2).stderr


def test_a_model_without_a_roster_is_registered_with_a_caveat(run, story, tmp_path):
    given, notes = (story.x, story.y), {"columns": ["age", "dose"], "target": "healed"}
    for roster in (True, False):
        trained = ub.fit(story.model, given, ids=story.ids, roster=roster, key=KEY)
        ub.save(tmp_path / "m", trained.posterior, story.model, memory=trained.memory, notes=notes)
        said = run("register", f"roster {roster}", tmp_path / "m", "--ids", "customer").stdout
        assert ("but the model was trained without a roster" in said) is not roster


def test_a_new_base(run, story, tmp_path):
    run("request", "credit", "--subject", "a", "--rows", story.table(5), "--approve")
    run("apply", "credit")
    left_out = json.loads(run("suppressed", "credit", "--json").stdout)["note"]
    kept = [i for i in range(ROWS) if i != 5]
    trained = ub.fit(story.model, (story.x[kept], story.y[kept]), ids=[story.ids[i] for i in kept], key=KEY)
    new, notes = tmp_path / "new.unbayes", {"columns": ["age", "dose"], "target": "healed"}
    ub.save(new, trained.posterior, story.model, memory=trained.memory, notes=notes)
    assert "left out of its training" in run("rebase", "credit", new, code=2).stderr
    ub.save(new, trained.posterior, story.model, memory=trained.memory, notes={**notes, "left_out": left_out})
    assert "version 3 is its new base" in run("rebase", "credit", new).stdout
    assert run("versions", "credit").stdout.count("destroyed") == 2


def test_training_on(run, story, tmp_path):
    run("request", "credit", "--subject", "a", "--rows", story.table(5), "--approve")
    run("apply", "credit")
    too_many = story.table(*range(ROWS), name="all.csv")
    said = run("refine", "credit", "--remaining", too_many, code=2).stderr
    assert "1 are of people to be left out" in said
    remaining = story.table(*(i for i in range(ROWS) if i != 5), name="remaining.csv")
    found = json.loads(run("refine", "credit", "--remaining", remaining, "--json").stdout)
    assert (found["number"], found["kind"], found["is_kept"]) == (3, "refined", True)


def test_moving_to_another_database(run, story, tmp_path):
    run("request", "credit", "--subject", "a", "--rows", story.table(5), "--approve")
    run("apply", "credit")
    before = listed(run)
    url = f"sqlite:///{tmp_path / 'elsewhere.sqlite'}"
    assert "uses the new database from now on" in run("export", "--to", url).stdout
    assert listed(run) == before
    run("request", "credit", "--subject", "b", "--rows", story.table(6), "--approve")
    run("apply", "credit")
    run("log", "verify")
    assert (tmp_path / "ledger" / "database.url").read_text().strip() == url
    assert "must be an empty database" in run("export", "--to", url, code=2).stderr
    assert "db must be" in run("export", "--to", "mysql://x/y", code=2).stderr


def test_four_eyes(run, story, tmp_path):
    run("register", "eyes", story.folder / "model.unbayes", "--ids", "customer", "--four-eyes")
    ask = ["request", "eyes", "--subject", "a", "--rows", story.table(5), "--client", "anna"]
    assert "must be left to somebody else" in run(*ask, "--approve", code=2).stderr
    assert listed(run) == {}
    run(*ask)
    assert "by must say who decides" in run("approve", 1, code=2).stderr
    assert "somebody else than who submitted it" in run("approve", 1, "--by", "anna", code=2).stderr
    assert "somebody else" in run("deny", 1, "--ground", "x", "--by", "Anna ", code=2).stderr
    assert "somebody else" in run("extend", 1, "--days", 3, "--reason", "x", "--by", "anna", code=2).stderr
    run("extend", 1, "--days", 3, "--reason", "x", "--by", "ben")
    run("approve", 1, "--by", "ben")
    run("withdraw", 1, "--by", "anna")
    with Ledger.open(tmp_path / "ledger") as ledger:
        details = [each.details.get("by") for each in ledger.log.openings(1).values()]
    assert details == [None, "ben", "ben", "anna"]


def test_tokens(run, tmp_path):
    first = run("token", "create", "portal", "--scope", "submit", "--scope", "audit", "--days", 30)
    shown = first.stdout.splitlines()[-1]
    second = json.loads(run("token", "create", "model", "--scope", "predict", "--json").stdout)
    with Ledger.open(tmp_path / "ledger") as ledger:
        assert ledger.tokens.find(shown).name == "portal"
        assert ledger.tokens.find(second["token"]).scopes == {"predict"}
    listed = json.loads(run("token", "list", "--json").stdout)
    assert [(each["name"], each["scopes"]) for each in listed] == [
        ("portal", ["audit", "submit"]),
        ("model", ["predict"]),
    ]
    assert listed[0]["expires"] > listed[0]["created"]
    assert "portal" in run("token", "list").stdout
    assert shown not in run("token", "list", "--json").stdout + run("token", "list").stdout
    assert "token 1 of portal is revoked" in run("token", "revoke", 1).stdout
    with Ledger.open(tmp_path / "ledger") as ledger:
        assert ledger.tokens.find(shown) is None
    assert "there is no token 9" in run("token", "revoke", 9, code=2).stderr
    assert "scopes must be among" in run("token", "create", "x", "--scope", "root", code=2).stderr


def test_hooks(run, story):
    with Receiver() as receiver:
        line, secret = run("hook", "add", receiver.url, "--kind", "request_received").stdout.splitlines()
        assert "hook 1 is told of request_received" in line
        run("request", "credit", "--subject", "a", "--rows", story.table(5))
        (listed,) = json.loads(run("hook", "list", "--json").stdout)
        assert (listed["waiting"], listed["kinds"]) == (1, ["request_received"])
        run("worker", "--once")
        (got,) = receiver.got
        assert got.is_genuine(secret, int(got.headers["Unbayes-Timestamp"]))
        assert got.event["request"] == 1
        receiver.answers = [500]
        run("request", "credit", "--subject", "b", "--rows", story.table(6))
        run("worker", "--once")
        assert "it answered 500" in run("hook", "list").stdout
    assert "hook 1 is removed" in run("hook", "remove", 1).stdout
    assert json.loads(run("hook", "list", "--json").stdout) == []
    assert "there is no hook 1" in run("hook", "remove", 1, code=2).stderr
    assert "url must be https" in run("hook", "add", "http://a.example/", code=2).stderr


@pytest.mark.long
def test_a_worker_that_runs_notices_what_is_wanted_and_tells_hooks(run, story, tmp_path):
    folder = tmp_path / "ledger"
    command = [sys.executable, "-m", "unbayes.cli", "worker", "--every", "3600", "--ledger", str(folder)]
    kept = {"UNBAYES_CACHE": os.environ["JAX_COMPILATION_CACHE_DIR"]}
    with Receiver() as receiver, Ledger.open(folder) as ledger:
        worker = subprocess.Popen(command, env=os.environ | kept, stdout=subprocess.PIPE, text=True)
        try:
            ledger.hooks.add(receiver.url)
            wait_until(lambda: receiver.got)
            run("request", "credit", "--subject", "a", "--rows", story.table(5), "--approve")
            ledger.want("credit")
            wait_until(lambda: ledger.show(1).state is RequestState.CLOSED)
            wait_until(lambda: receiver.got[-1].event["kind"] == "request_closed")
            assert ledger.model("credit").wanted is None
            assert ledger.model("credit").progress is None
        finally:
            worker.terminate()
            said, _ = worker.communicate(timeout=30)
    assert worker.returncode == 0
    assert "version 2 is without 1 records" in said


def wait_until(is_so):
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_what_holds_a_request_back(run, story):
    path = story.table(5)
    path.write_text(path.read_text().replace("c5", "nobody"))
    run("request", "credit", "--subject", "a", "--rows", path, "--approve")
    assert "1 of 1 records are not among those" in run("apply", "credit", code=11).stdout
    run("approve", 1, "--missing", "skip")
    run("apply", "credit")
    assert listed(run)[1]["unknown"] == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["apply", "other"], "there is no model 'other'; registered are: credit"),
        (["approve", "7"], "there is no request 7"),
        (["report", "1", "--out", "x"], "there is no request 1"),
        (["apply", "credit", "--when", "soon"], "when must be now"),
        (["register", "credit", "model.unbayes", "--ids", "customer"], "there is a model 'credit' already"),
        (["register", "a", "model.unbayes", "--ids", "age"], "ids must be a column of its own"),
        (["request", "credit", "--subject", "a", "--rows", "none.csv"], "none.csv cannot be read"),
        (["request", "credit", "--rows", "rows.csv"], "either --subject or --by"),
        (["init"], "must be an empty folder"),
        (["serve-model", "credit", "--out", "no/folder"], "no such file"),
    ],
)
def test_refusals(run, story, monkeypatch, arguments, sentence):
    monkeypatch.chdir(story.folder)
    story.table(0)
    done = run(*arguments, code=2)
    assert sentence in done.stderr.lower() or sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_no_ledger(unbayes, tmp_path):
    done = unbayes("requests", "--ledger", tmp_path / "nowhere")
    assert (done.exit_code, "unbayes init makes one" in done.stderr) == (2, True)


def test_what_does_not_compute_imports_no_jax(run, story, tmp_path):
    code = "import sys; from unbayes.cli import app; app(standalone_mode=False); print('jax' in sys.modules)"
    rows = story.table(8)
    for arguments in (
        ["requests"],
        ["request", "credit", "--subject", "a", "--rows", rows],
        ["request", "credit", "--subject", "p1", "--source", rows, "--person", "person"],
        ["approve", "1"],
    ):
        done = start(["-c", code], *arguments, UNBAYES_LEDGER=str(tmp_path / "ledger"))
        assert done.stdout.splitlines()[-1] == "False", done.stderr
