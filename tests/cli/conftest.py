"""Saved models and tables of erased rows, made once, and the command line on them."""

import csv
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest
from typer.testing import CliRunner

import unbayes as ub
from cli.helpers import contents, first
from cli.story import Story
from problems import KEY, Problem, linear_gaussian, logistic
from unbayes import cli

NOTES = {"columns": ["age", "dose"], "target": "healed", "records": 150}


class Files(NamedTuple):
    """Paths of saved models, all of the same logistic regression, and what they hold."""

    folder: Path
    problem: Problem
    trained: ub.Trained
    full: Path
    diagonal: Path
    unnamed: Path
    sums: Path
    summed: ub.Trained


@pytest.fixture(autouse=True)
def settings():
    """A command sets JAX up for its file; put things back."""
    before = jax.config.jax_enable_x64
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    problem = logistic()
    trained = ub.fit(problem.model, problem.full, memory=40, key=KEY)
    diagonal = ub.fit(problem.model, problem.full, family=ub.DiagonalGaussian, key=KEY)
    summed = ub.fit(problem.model, problem.full, memory="sums", key=KEY)
    paths = [folder / f"{name}.unbayes" for name in ("full", "diagonal", "unnamed", "sums")]
    ub.save(paths[0], trained.posterior, problem.model, memory=trained.memory, notes=NOTES)
    ub.save(paths[1], diagonal.posterior, problem.model, notes=NOTES)
    ub.save(paths[2], trained.posterior, problem.model)
    ub.save(paths[3], summed.posterior, problem.model, memory=summed.memory, notes=NOTES)
    return Files(folder, problem, trained, *paths, summed)


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory):
    """A Beta–Bernoulli model that has seen six ones and four zeros."""
    path = tmp_path_factory.mktemp("outcomes") / "outcomes.unbayes"
    ub.save(path, ub.Beta(7.0, 5.0), ub.BetaBernoulli(ub.Beta(1.0, 1.0)))
    return path


@pytest.fixture(scope="session")
def functions(tmp_path_factory):
    """A model whose features are a function."""
    path = tmp_path_factory.mktemp("functions") / "functions.unbayes"
    prior = ub.DiagonalGaussian(jnp.zeros(3), jnp.ones(3))
    features = ub.FunctionFeatures(jnp.tanh, inputs=2, outputs=2)
    ub.save(path, prior, ub.LinearModel(features, ub.BernoulliLikelihood(), prior), notes=NOTES)
    return path


@pytest.fixture(scope="session")
def statistics(tmp_path_factory):
    path = tmp_path_factory.mktemp("sums") / "sums.unbayes"
    problem = linear_gaussian()
    posterior = ub.FullGaussian(jnp.zeros(4), jnp.eye(4) / 100)
    named = [f"record {i}" for i in range(20)]
    found = ub.summarise(posterior, problem.model, problem.erased, ids=named, key=KEY)
    ub.save_statistics(path, found)
    return path, found


@pytest.fixture
def table(tmp_path):
    """Write a table of people, with columns in another order than the model's, and return its path."""

    def write(records, name="rows.csv", header=("id", "dose", "age", "healed")):
        x, y = records
        path = tmp_path / name
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(header)
            for i in range(len(y)):
                writer.writerow([f"person {i}", repr(float(x[i, 1])), repr(float(x[i, 0])), int(y[i])])
        return path

    return write


@pytest.fixture
def rows(table, files):
    """The first six records as a table."""
    return table(first(files, 6))


@pytest.fixture
def unbayes():
    """Run a command in this process."""

    def run(*arguments):
        return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])

    return run


@pytest.fixture
def refused(unbayes, tmp_path):
    """Run a command that must say one sentence, exit with code 2, and leave every file as it was."""

    def run(*arguments):
        before = contents(tmp_path)
        done = unbayes(*arguments)
        assert done.exit_code == 2, done.output
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert contents(tmp_path) == before
        return done.stderr

    return run


@pytest.fixture(scope="session")
def story(tmp_path_factory):
    return Story(tmp_path_factory.mktemp("story"))


@pytest.fixture
def run(unbayes, tmp_path, story):
    """Run a command on a ledger with one model."""

    def call(*arguments, code=0):
        done = unbayes(*arguments, "--ledger", tmp_path / "ledger")
        assert done.exit_code == code, done.output
        return done

    call("init")
    call("register", "credit", story.folder / "model.unbayes", "--ids", "customer")
    return call
