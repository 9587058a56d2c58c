"""The command `unbayes reproduce`."""

import json

import jax
import pytest
from typer.testing import CliRunner

from unbayes import cli
from unbayes_paper.catalogue import EXPERIMENTS
from unbayes_paper.data import DataMissing

RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def settings():
    """The command sets JAX up for itself; put things back."""
    before = {name: getattr(jax.config, name) for name in ("jax_enable_x64", "jax_compilation_cache_dir")}
    with jax.numpy_dtype_promotion("standard"):
        yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_the_list_says_what_there_is():
    listed = RUNNER.invoke(cli.app, ["reproduce", "--list"])
    assert listed.exit_code == 0
    assert all(name.split("-")[0] in listed.output for name in EXPERIMENTS)


def test_unknown_names_are_refused():
    refused = RUNNER.invoke(cli.app, ["reproduce", "sun"])
    assert refused.exit_code == 2
    assert "no experiment is called sun" in " ".join(refused.output.replace("│", " ").split())


def test_an_unknown_optimiser_is_refused():
    refused = RUNNER.invoke(cli.app, ["reproduce", "moon", "--optimiser", "newton"])
    assert refused.exit_code == 2
    assert "'adam', 'rmsprop'" in " ".join(refused.output.replace("│", " ").split())


@pytest.mark.long
def test_one_experiment(tmp_path):
    arguments = ["reproduce", "bounds", "--quick", "--seeds", "1", "--output", str(tmp_path)]
    done = RUNNER.invoke(cli.app, arguments)
    assert done.exit_code == 0, done.output
    assert "the bounds mirror each other" in done.output
    assert "Two bounds that mirror each other" in (tmp_path / "report.html").read_text()
    results = json.loads((tmp_path / "results.json").read_text())
    assert list(results["experiments"]) == ["bounds"]


def _without_data(lab):
    raise DataMissing("banknotes are needed")


@pytest.mark.long
def test_missing_data_end_a_single_run_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(EXPERIMENTS, "banknote", EXPERIMENTS["banknote"]._replace(run=_without_data))
    alone = RUNNER.invoke(cli.app, ["reproduce", "banknote", "--output", str(tmp_path)])
    assert alone.exit_code == 1
    assert "banknotes are needed" in alone.output
    among = RUNNER.invoke(
        cli.app, ["reproduce", "bounds", "banknote", "--quick", "--seeds", "1", "--output", str(tmp_path)]
    )
    assert among.exit_code == 0
    assert "Left out: banknotes are needed" in (tmp_path / "report.html").read_text()


def test_ctrl_c_says_how_to_go_on(tmp_path, monkeypatch):
    def interrupted(lab):
        raise KeyboardInterrupt

    monkeypatch.setitem(EXPERIMENTS, "bounds", EXPERIMENTS["bounds"]._replace(run=interrupted))
    stopped = RUNNER.invoke(cli.app, ["reproduce", "bounds", "--output", str(tmp_path)])
    assert stopped.exit_code == 130
    assert "goes on from here" in stopped.output
