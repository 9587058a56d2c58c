"""The command `unbayes erase`."""

import dataclasses
import datetime
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import unbayes as ub
from cli.helpers import contents, first, same, start
from problems import KEY, take
from unbayes.cli.erase import EXIT_CODES

# Without a memory errors are not predicted well enough for the default.
WIDE = ("--tolerance", "0.1")
NAMED = ("--inputs", "age,dose", "--target", "healed")


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out.unbayes"


def expected(files, records, memory=None):
    """What the call in Python gives."""
    return ub.unlearn(files.trained.posterior, files.problem.model, records, memory=memory, key=KEY)


def encodings(value):
    """Every way in which a file may hold a number."""
    yield from (np.array(value, kind).tobytes() for kind in ("<f4", ">f4", "<f8", ">f8"))
    yield repr(float(value)).encode()


def coreset_rows(files, number):
    """Training records that the memory holds."""
    x, _ = files.problem.full
    held = np.asarray(files.trained.memory.coreset.design)[:, 1:]
    return np.flatnonzero((x[:, None] == held).all(2).any(1))[:number]


def test_a_trusted_result(unbayes, files, rows, out):
    done = unbayes("erase", files.full, rows, "--out", out)
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    result = expected(files, first(files, 6), files.trained.memory)
    printed = [line for line in done.stdout.splitlines() if "seconds" not in line]
    assert printed == [line for line in str(result).splitlines() if "seconds" not in line]
    saved = ub.load(out)
    assert same(saved.posterior, result.posterior)
    assert saved.memory.records == 144
    assert saved.memory.size == result.memory.size


def test_sums_are_used_and_handed_on_without_the_erased_rows(unbayes, files, rows, out, tmp_path):
    unbayes("erase", files.sums, rows, "--out", out)
    trained, model = files.summed, files.problem.model
    result = ub.unlearn(trained.posterior, model, first(files, 6), memory=trained.memory, key=KEY)
    one_step = expected(files, first(files, 6))
    saved = ub.load(out)
    assert same(saved.posterior, result.posterior)
    assert not same(saved.posterior, one_step.posterior, 1e-7)
    left = saved.memory.sums.derivatives
    for own, its in zip(jax.tree.leaves(left), jax.tree.leaves(result.memory.sums.derivatives), strict=True):
        np.testing.assert_allclose(own, its, rtol=1e-9, atol=1e-12)
    done = unbayes("erase", files.sums, rows, "--out", tmp_path / "again.unbayes", "--json")
    assert json.loads(done.stdout)["measures"]["order"] == 4
    # Rows that are gone from the sums are refused by what is left.
    assert unbayes("erase", out, rows, "--out", tmp_path / "twice.unbayes").exit_code == 2


def test_the_file_notes_what_was_done(unbayes, files, rows, out):
    unbayes("erase", files.full, rows, "--out", out)
    notes = ub.load(out).notes
    (erasure,) = notes.pop("erasures")
    assert notes == ub.load(files.full).notes
    when = datetime.datetime.fromisoformat(erasure.pop("when"))
    assert when.tzinfo == datetime.UTC
    assert abs(datetime.datetime.now(datetime.UTC) - when) < datetime.timedelta(minutes=5)
    assert erasure == {"records": 6, "verdict": "trusted", "method": "NaturalGradient()", "doubts": []}
    assert "6 records by NaturalGradient()" in unbayes("show", out).stdout
    assert "trusted" in unbayes("show", out).stdout


def test_parquet_gives_the_same(unbayes, files, tmp_path, out):
    pa = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    from pyarrow import parquet

    x, y = first(files, 6)
    path = tmp_path / "rows.parquet"
    columns = {"healed": y.astype(bool), "dose": x[:, 1], "age": x[:, 0]}
    parquet.write_table(pa.table(columns), path)
    assert unbayes("erase", files.full, path, "--out", out).exit_code == 0
    result = expected(files, first(files, 6), files.trained.memory)
    assert same(ub.load(out).posterior, result.posterior)


def test_json(unbayes, files, rows, out):
    done = unbayes("erase", files.full, rows, "--out", out, "--json", "--no-memory")
    result = expected(files, first(files, 6))
    found = json.loads(done.stdout)
    assert found.pop("seconds") > 0
    error = dataclasses.asdict(result.error)
    assert found["error"].pop("source") == error.pop("source")
    assert found.pop("error") == pytest.approx(error)
    assert found.pop("information") == pytest.approx(result.information)
    measures = found.pop("measures")
    assert measures.pop("improbable_rows") == []
    expected_measures = result.trust.measures._asdict()
    assert expected_measures.pop("improbable_rows") == ()
    assert measures == pytest.approx(expected_measures)
    assert found == {
        "records": 6,
        "method": str(result.method),
        "choice": result.choice,
        "verdict": str(result.verdict),
        "doubts": list(result.doubts),
        "caveats": list(result.caveats),
        "out": str(out),
    }
    assert done.exit_code == EXIT_CODES[result.verdict]


def test_no_memory_is_neither_used_nor_handed_on(unbayes, files, rows, out):
    unbayes("erase", files.full, rows, "--out", out, "--no-memory")
    saved = ub.load(out)
    assert saved.memory is None
    assert same(saved.posterior, expected(files, first(files, 6)).posterior)


def test_columns_by_options(unbayes, files, table, out):
    path = table(first(files, 6), header=("id", "b", "a", "y"))
    done = unbayes("erase", files.unnamed, path, "--out", out, "--inputs", "a,b", "--target", "y", *WIDE)
    assert done.exit_code == 0, done.output
    assert same(ub.load(out).posterior, expected(files, first(files, 6)).posterior)


@pytest.mark.parametrize("file", ["unnamed", "full"])
def test_columns_by_number(unbayes, files, text, out, file):
    """Without a header, what the notes name cannot be found and is left aside."""
    x, y = first(files, 6)
    lines = [f"{label},{a!r},{b!r}" for (a, b), label in zip(x.tolist(), y.tolist(), strict=True)]
    arguments = ["--out", out, "--no-header", "--target", "0", "--no-memory", *WIDE]
    done = unbayes("erase", getattr(files, file), text("\n".join(lines)), *arguments)
    assert done.exit_code == 0, done.output
    assert same(ub.load(out).posterior, expected(files, first(files, 6)).posterior)


def test_records_of_one_column(unbayes, outcomes, text, out):
    path = text("name,won\nx,1\ny,1\nz,0\n")
    done = unbayes("erase", outcomes, path, "--out", out, "--target", "won")
    assert done.exit_code == 0, done.output
    posterior = ub.load(out).posterior
    assert (float(posterior.successes), float(posterior.failures)) == (5, 4)


def test_nothing_of_an_erased_row_is_left(unbayes, files, table, out):
    x, y = take(files.problem.full, coreset_rows(files, 5))
    assert len(x) == 5
    unbayes("erase", files.full, table((x, y)), "--out", out)
    before, after = files.full.read_bytes(), out.read_bytes()
    for value in x.ravel():
        assert any(code in before for code in encodings(value)), "the search finds nothing"
        assert not any(code in after for code in encodings(value))
    assert b"person" not in after


def test_a_doubtful_result(unbayes, files, rows, out):
    done = unbayes("erase", files.diagonal, rows, "--out", out, "--tolerance", "1")
    assert done.exit_code == 10
    assert "A memory of sums brings the result closer" in done.stdout
    assert "because" in unbayes("show", out).stdout
    assert ub.load(out).notes["erasures"][0]["verdict"] == "doubtful"


def test_a_result_that_asks_for_retraining(unbayes, files, table, out):
    done = unbayes("erase", files.unnamed, table(first(files, 145)), "--out", out, *NAMED)
    assert done.exit_code == 20, done.output
    assert ub.load(out).notes["erasures"][0]["verdict"] == "retrain"


def test_no_posterior_is_no_file(unbayes, tmp_path, text, out):
    """Values of θ at which the erased outcomes are impossible."""
    path, belief = tmp_path / "table.unbayes", jnp.array([-jnp.inf, 0.0, -jnp.inf])
    posterior = ub.Table(jnp.array([[0.0], [0.5], [1.0]]), belief)
    ub.save(path, posterior, ub.BetaBernoulli(ub.Beta(1.0, 1.0)))
    done = unbayes("erase", path, text("won\n1\n0\n"), "--out", out)
    assert done.exit_code == 21
    assert done.stdout == ""
    assert done.stderr.startswith("nothing was written, retrain: ")
    assert not out.exists()


def test_stacked_erasures_are_listed_and_warned_of(unbayes, files, table, tmp_path, out):
    x, y = files.problem.full
    unbayes("erase", files.full, table((x[:6], y[:6])), "--out", out)
    again = tmp_path / "again.unbayes"
    done = unbayes("erase", out, table((x[6:12], y[6:12])), "--out", again)
    assert done.exit_code == 0
    assert "Errors add up when erasures are stacked" in done.stderr
    assert "Errors" not in done.stdout
    assert [each["records"] for each in ub.load(again).notes["erasures"]] == [6, 6]
    assert ub.load(again).memory.records == 138
    assert "erasure 2" in unbayes("show", again).stdout


def test_force_lets_the_file_be_replaced(unbayes, files, rows, out):
    out.write_bytes(files.full.read_bytes())
    assert unbayes("erase", out, rows, "--out", out, "--force").exit_code == 0
    assert ub.load(out).memory.records == 144


def test_another_file_at_out_is_replaced(unbayes, outcomes, text, out):
    out.write_text("old")
    assert unbayes("erase", outcomes, text("won\n1\n"), "--out", out).exit_code == 0
    assert float(ub.load(out).posterior.successes) == 6


def test_the_seed_is_the_key(unbayes, outcomes, text, out, monkeypatch):
    seen = []
    real = ub.unlearn
    monkeypatch.setattr(ub, "unlearn", lambda *given, **named: seen.append(named) or real(*given, **named))
    unbayes("erase", outcomes, text("won\n1\n"), "--out", out, "--seed", 5)
    assert seen[0]["key"] == jax.random.key(5)
    assert seen[0]["progress"] is None, "stderr is no terminal"


@pytest.mark.parametrize(("option", "shows"), [("--progress", True), ("--no-progress", False)])
def test_progress_goes_to_a_terminal_on_stderr(unbayes, outcomes, text, out, monkeypatch, option, shows):
    real, seen = ub.unlearn, []

    def unlearn(*given, progress, **named):
        seen.append(progress)
        print("said while working")
        return real(*given, **named)

    monkeypatch.setattr(ub, "unlearn", unlearn)
    monkeypatch.setattr(sys.modules["unbayes.cli.erase"], "_is_terminal", lambda: True)
    done = unbayes("erase", outcomes, text("won\n1\n"), "--out", out, option)
    assert isinstance(seen[0], ub.ProgressBar) == shows
    assert "said while working" in done.stderr
    assert "said while working" not in done.stdout


def refuse_rows(refused, files, path, out, *arguments):
    return refused("erase", files.full, path, "--out", out, *arguments)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "but is empty"),
        ("age,dose,healed\n", "has none below its header"),
        ("1.5,2.5,1\n", "give --no-header"),
        ("age,healed\n1,0\n", "has no column dose; it has age, healed"),
        ("age,dose,healed\n1,2,0\n1,many,0\n", "line 3, column dose of"),
        ("age,dose,healed\n1,2,0\n1,,0\n", "line 3, column dose of"),
        ("age,dose,healed\n1,2,7\n", "cannot be erased: erased targets must hold labels 0 to 1"),
        ("age,dose,healed\n" + 150 * "0.1,0.2,1\n", "150 of 150 are not: row 0, row 1"),
    ],
)
def test_rows_that_cannot_be_erased_are_refused(refused, files, text, out, content, reason):
    assert reason in refuse_rows(refused, files, text(content), out)


def test_more_rows_than_were_trained_on_are_refused(refused, files, table, out):
    twice = tuple(np.concatenate([part, part]) for part in files.problem.full)
    sentence = refuse_rows(refused, files, table(twice), out)
    assert "must be among the 150 training records, got 300" in sentence


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "--target must name the target column of"),
        (["--target", "healed"], "must have 2 columns besides the target healed, got 3 (id, dose, age)"),
        (["--target", "cured", "--inputs", "age,dose"], "has no column cured"),
        (["--target", "healed", "--inputs", "age"], "the model takes 2 inputs, but 1 are named: age"),
        (["--target", "healed", "--inputs", "id,dose"], "line 2, column id of"),
        (["--no-header", "--target", "9"], "must have 2 columns besides the target 9, got 4"),
    ],
)
def test_columns_that_do_not_fit_are_refused(refused, files, rows, out, arguments, reason):
    assert reason in refused("erase", files.unnamed, rows, "--out", out, *arguments)


def test_inputs_of_a_model_without_any_are_refused(refused, outcomes, text, out):
    sentence = refused("erase", outcomes, text("won\n1\n"), "--out", out, "--inputs", "won")
    assert "--inputs must be left out" in sentence


def test_more_outcomes_than_there_were_are_refused(refused, outcomes, text, out):
    assert "more evidence than the posterior" in refused(
        "erase", outcomes, text("won\n" + "1\n" * 7), "--out", out
    )


def test_files_without_a_model_to_rebuild_are_refused(refused, functions, statistics, rows, tmp_path, out):
    sentence = refused("erase", functions, rows, "--out", out)
    assert "a model with functions (model.features.function), which no file can store" in sentence
    assert "it holds statistics, not model" in refused("erase", statistics[0], rows, "--out", out)
    assert "not a zip file" in refused("erase", rows, rows, "--out", out)
    assert "no such file" in refused("erase", tmp_path / "none.unbayes", rows, "--out", out)
    alone = tmp_path / "alone.unbayes"
    ub.save(alone, ub.Beta(2.0, 3.0))
    assert "but holds a posterior alone" in refused("erase", alone, rows, "--out", out)
    ub.save(alone, ub.Beta(2.0, 3.0), ub.BetaBernoulli(ub.Beta(1.0, 1.0)), notes={"erasures": {}})
    assert "erasures that unbayes erase did not write" in refused("erase", alone, rows, "--out", out)


def test_places_where_nothing_can_be_written_are_refused(refused, files, rows, tmp_path):
    copy = tmp_path / "copy.unbayes"
    copy.write_bytes(files.full.read_bytes())
    link = tmp_path / "link.unbayes"
    link.symlink_to(copy)
    for place in (copy, link, tmp_path / "." / "copy.unbayes"):
        assert "--force replaces that" in refused("erase", copy, rows, "--out", place)
    assert "which holds the records" in refused("erase", copy, rows, "--out", rows, "--force")
    assert "is a directory" in refused("erase", copy, rows, "--out", tmp_path)
    assert "no such file or directory" in refused("erase", copy, rows, "--out", tmp_path / "none" / "out")
    assert "not a directory" in refused("erase", copy, rows, "--out", rows / "out")


@pytest.mark.skipif(sys.platform != "linux", reason="needs a folder that not even root can write to")
def test_a_folder_that_cannot_be_written_to_is_refused(refused, files, rows):
    assert "/proc/out.unbayes cannot be written" in refused(
        "erase", files.full, rows, "--out", "/proc/out.unbayes"
    )


def test_a_disk_that_fills_up_leaves_nothing_behind(refused, outcomes, text, out, monkeypatch):
    def fail(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    sentence = refused("erase", outcomes, text("won\n1\n"), "--out", out)
    assert sentence == f"{out} cannot be written: no space left on device\n"


def test_parquet_asks_for_its_extra(refused, files, tmp_path, out, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"PAR1")
    assert refuse_rows(refused, files, path, out) == (
        "reading Parquet needs pip install 'unbayes[parquet]'\n"
    )


def test_the_exit_codes_are_in_the_help(unbayes):
    shown = " ".join(unbayes("erase", "--help").stdout.split())
    assert "0 the result is trusted 10 it is doubtful" in shown
    assert "20 it was written, but retrain 21 no posterior was found" in shown


@pytest.mark.long
def test_double_precision_in_a_new_process(files, rows, out):
    """A file of float64, in a process whose JAX starts with float32."""
    command = ["erase", files.full, rows, "--out", out]
    done = start(["-m", "unbayes.cli"], *command, JAX_ENABLE_X64="false", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert "stationarity of q(\\u03b8|D)" in done.stdout
    result = expected(files, first(files, 6), files.trained.memory)
    assert same(ub.load(out).posterior, result.posterior)
    assert set(contents(out.parent)) == {rows, out}


def test_single_precision(unbayes, tmp_path, text, out):
    """In a process whose JAX computes in float64, a file of float32 stays one."""
    path = tmp_path / "single.unbayes"
    single = [ub.Beta(np.float32(a), np.float32(b)) for a, b in ((3, 4), (1, 1))]
    ub.save(path, single[0], ub.BetaBernoulli(single[1]))
    assert unbayes("erase", path, text("won\n1\n"), "--out", out).exit_code == 0
    assert ub.load(out).posterior.dtype == jnp.float32
    with out.open("rb") as file:
        assert b"float64" not in file.read()


def test_the_same_rows_are_erased_once(unbayes, files, rows, out, tmp_path):
    assert unbayes("erase", files.full, rows, "--out", out).exit_code == 0
    again = tmp_path / "again.unbayes"
    done = unbayes("erase", out, rows, "--out", again)
    assert done.exit_code == 2
    assert "6 of 6 are not: row 0" in done.stderr
    assert not again.exists()
    allowed = unbayes("erase", out, rows, "--out", again, "--missing", "allow")
    assert allowed.exit_code == 20
    assert "6 of the 6 erased records are not among the training records" in allowed.stdout


def test_records_go_by_their_ids(unbayes, refused, files, text, out, tmp_path):
    model, (x, y) = files.problem.model, files.problem.full
    names = [f"c-{row}" for row in range(len(y))]
    trained = ub.fit(model, (x, y), ids=names, key=KEY)
    path = tmp_path / "named.unbayes"
    ub.save(path, trained.posterior, model, memory=trained.memory)
    lines = [f"{names[row]},{x[row, 0]},{x[row, 1]},{y[row]}" for row in range(6)]
    table = text("customer,age,dose,healed\n" + "\n".join(lines) + "\n")
    into = (path, table, "--out", out, "--target", "healed")
    assert "has no column client" in refused("erase", *into, "--ids", "client")
    assert "ids must be given" in refused("erase", *into, "--inputs", "age,dose")
    assert unbayes("erase", *into, "--ids", "customer", *WIDE).exit_code == 0
    assert b"c-3" not in out.read_bytes()
    again = unbayes("erase", out, table, "--out", path, "--target", "healed", "--ids", "customer")
    assert again.exit_code == 2
    assert "6 of 6 are not: 'c-0', 'c-1'" in again.stderr


@pytest.fixture
def encoded(tmp_path):
    """A model of columns that training encoded, its records and the file."""
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    rng = np.random.default_rng(0)
    zone, age = rng.choice(["eu", "us"], 40), rng.normal(50, 9, 40)
    data = pyarrow.table({"zone": zone, "age": age, "y": age / 9 + (zone == "eu")})
    columns = ub.Columns.of(data, target="y")
    model = ub.linear_regression(columns.width, prior_scale=3.0, noise_scale=0.5)
    trained = ub.fit(model, ub.scan(data, columns=columns), key=KEY)
    path = tmp_path / "encoded.unbayes"
    ub.save(path, trained.posterior, model, memory=trained.memory, columns=columns)
    remaining = ub.fit(model, ub.scan(data.slice(5), columns=columns), key=KEY)
    lines = [f"{row['age']!r},{row['zone']},{row['y']!r}" for row in data.slice(0, 5).to_pylist()]
    return path, "age,zone,y\n" + "\n".join(lines) + "\n", remaining.posterior


def test_rows_are_encoded_as_training_records_were(unbayes, refused, encoded, text, out):
    path, rows, expected = encoded
    done = unbayes("erase", path, text(rows), "--out", out)
    assert done.exit_code == 0, done.output
    assert "were learnt with the erased records" in done.stdout
    left = ub.load(out)
    np.testing.assert_allclose(left.posterior.mean, expected.mean, rtol=1e-10)
    np.testing.assert_allclose(left.posterior.covariance, expected.covariance, rtol=1e-10)
    assert left.columns == ub.load(path).columns
    shown = " ".join(unbayes("show", out).stdout.split())
    assert "inputs zone (2 categories), age (standardised) target y" in shown
    for option, reason in (
        (["--inputs", "age,zone"], "inputs and target must be left out"),
        (["--no-header"], "--no-header must be left out"),
    ):
        assert reason in refused("erase", path, text(rows), "--out", out, *option)
    assert "column zone must be one of the categories" in refused(
        "erase", path, text(rows.replace("eu", "secret").replace("us", "secret")), "--out", out
    )


def test_rows_are_taken_from_wherever_they_are(unbayes, refused, files, tmp_path, out):
    """A folder, a pattern or a Delta table; of these, the records that meet a condition."""
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra parquet")
    write_deltalake = pytest.importorskip("deltalake", reason="needs the extra delta").write_deltalake
    from pyarrow import csv, parquet

    x, y = files.problem.full
    everybody = pyarrow.table(
        {"healed": y, "age": x[:, 0], "who": np.arange(150) // 3, "dose": x[:, 1], "id": np.arange(150)}
    )
    (tmp_path / "all").mkdir()
    for part in range(3):
        csv.write_csv(everybody.slice(50 * part, 50), tmp_path / f"{part}.csv")
        parquet.write_table(everybody.slice(50 * part, 50), tmp_path / f"all/{part}.parquet")
    write_deltalake(tmp_path / "delta", everybody)
    expected = ub.unlearn(
        files.trained.posterior, files.problem.model, (x[:6], y[:6]), memory=files.trained.memory, key=KEY
    )
    for place in ("all", "all/*.parquet", "?.csv", "delta", "0.csv"):
        done = unbayes("erase", files.full, tmp_path / place, "--out", out, "--where", "who in 0,1")
        assert done.exit_code == 0, done.output
        np.testing.assert_allclose(ub.load(out).posterior.mean, expected.posterior.mean, rtol=1e-8)
    with pyarrow.CompressedOutputStream(str(tmp_path / "six.csv.gz"), "gzip") as packed:
        csv.write_csv(everybody.slice(0, 6), packed)
    assert unbayes("erase", files.full, tmp_path / "six.csv.gz", "--out", out).exit_code == 0
    np.testing.assert_allclose(ub.load(out).posterior.mean, expected.posterior.mean, rtol=1e-8)
    several = ("--where", "who < 4", "--where", "id <= 5")
    unbayes("erase", files.full, tmp_path / "delta", "--out", out, *several)
    np.testing.assert_allclose(ub.load(out).posterior.mean, expected.posterior.mean, rtol=1e-8)
    unnamed = (files.unnamed, tmp_path / "all", "--out", out, "--target", "healed", "--where", "who in 0,1")
    assert "must have 2 columns besides the target healed, got 3 (age, dose, id)" in refused(
        "erase", *unnamed
    )
    assert unbayes("erase", *unnamed, "--ids", "id").exit_code == 10, "it has no memory"
    for arguments, reason in (
        ((tmp_path / "all", "--where", "who is 0"), "a condition must be like"),
        ((tmp_path / "all", "--where", "town == x"), "which have no town"),
        ((tmp_path / "all", "--where", "who == 99"), "must hold at least one record, got none"),
        ((tmp_path / "all", "--no-header"), "--no-header is for one CSV file"),
        ((tmp_path / "none*",), "must match some files, but matches none"),
        (("foo://bar/x",), "fsspec knows no such address"),
    ):
        assert reason in refused("erase", files.full, *arguments, "--out", out)
    inside = tmp_path / "all/0.parquet"
    for place in ("all", "all/*.parquet"):
        assert "which holds the records" in refused("erase", files.full, tmp_path / place, "--out", inside)
