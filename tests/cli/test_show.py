"""The command `unbayes show`."""

import json
import re

import jax.numpy as jnp
import pytest

import unbayes as ub
from cli.helpers import start
from problems import KEY
from storage.tampering import tamper


def shown(unbayes, path):
    """The summary of a file, as JSON."""
    done = unbayes("show", path, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_a_model_with_a_memory(unbayes, files):
    done = unbayes("show", files.full)
    assert done.exit_code == 0
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines == [
        f"{files.full}: model, saved by unbayes {ub.__version__} in format 2",
        "model LinearModel",
        "features RawFeatures(inputs=2, bias=True)",
        "likelihood BernoulliLikelihood(outputs=1)",
        "parameters 3 of float64",
        "posterior FullGaussian",
        f"memory 150 training records, a coreset of {files.trained.memory.size}",
        f"warning this file holds {files.trained.memory.size} training records: "
        "protect it as you protect the data",
        "roster knows all records by their digits: whoever has the file and a record can tell whether it "
        "was trained on",
        "inputs age, dose",
        "target healed",
    ]


def test_the_same_as_json(unbayes, files):
    assert shown(unbayes, files.full) == {
        "file": str(files.full),
        "kind": "model",
        "library": ub.__version__,
        "format": 2,
        "model": {
            "class": "LinearModel",
            "features": "RawFeatures(inputs=2, bias=True)",
            "likelihood": "BernoulliLikelihood(outputs=1)",
            "functions": [],
        },
        "parameters": 3,
        "dtype": "float64",
        "posterior": "FullGaussian",
        "memory": {
            "records": 150,
            "sums": None,
            "coreset": files.trained.memory.size,
            "curvature": False,
            "is_stand_in": False,
            "known_by": "their digits",
        },
        "columns": ["age", "dose"],
        "target": "healed",
        "erasures": [],
    }


def test_sums_by_their_order_directions_and_size(unbayes, files, tmp_path):
    done = unbayes("show", files.sums)
    assert done.exit_code == 0
    # Numbers of eight bytes: 6 pairs of 3 directions by directions, by pairs, by both, and the directions.
    size = 8 * (6 * 3 + 6 * 6 + 6 * 6 * 3 + 3 * 3)
    assert "150 training records, sums of order 4 along all 3 directions (1.4 kB)\n" in done.stdout
    assert "warning" not in done.stdout
    expected = {"order": 4, "directions": 3, "of": 3, "share": 1.0, "bytes": size}
    assert shown(unbayes, files.sums)["memory"]["sums"] == expected
    problem, path = files.problem, tmp_path / "both.unbayes"
    kept = ub.fit(problem.model, problem.full, memory=(ub.Sums(3, 2), 10), key=KEY)
    ub.save(path, kept.posterior, problem.model, memory=kept.memory)
    done = unbayes("show", path)
    assert "sums of order 3 along 2 of 3 directions (0.1 kB), a coreset of" in done.stdout
    assert "training records: protect it as you protect the data" in done.stdout
    found = shown(unbayes, path)["memory"]["sums"]
    assert (found["order"], found["directions"], found["share"]) == (3, 2, kept.memory.sums.share)


def test_dense_curvature_and_no_coreset(unbayes, tmp_path):
    curvature = ub.GaussianNatural(jnp.zeros(2), ub.DensePrecision(jnp.eye(2)))
    path = tmp_path / "diagonal.unbayes"
    posterior = ub.DiagonalGaussian(jnp.zeros(2), jnp.ones(2))
    ub.save(path, posterior, ub.logistic_regression(1), memory=ub.Memory(9, None, curvature))
    done = unbayes("show", path)
    assert "9 training records, dense curvature\n" in done.stdout
    assert "warning" not in done.stdout


def test_a_posterior_alone(unbayes, tmp_path):
    path = tmp_path / "beta.unbayes"
    ub.save(path, ub.Beta(2.0, 3.0))
    done = unbayes("show", path)
    assert done.exit_code == 0
    assert "none: the file holds a posterior alone" in done.stdout
    found = shown(unbayes, path)
    assert (found["model"], found["memory"], found["parameters"]) == (None, None, 1)


def test_a_model_whose_functions_are_missing(unbayes, functions):
    done = unbayes("show", functions)
    assert done.exit_code == 0
    assert "FunctionFeatures(function=a function, inputs=2, outputs=2, bias=True)" in done.stdout
    assert shown(unbayes, functions)["model"]["functions"] == ["model.features.function"]


def test_a_density_model(unbayes, tmp_path):
    path = tmp_path / "density.unbayes"
    model = ub.DensityModel(lambda theta: 0.0, lambda theta, y: 0.0, dim=1)
    memory = ub.Memory(3, None, None, {"y": jnp.arange(2.0)}, jnp.ones(2))
    ub.save(path, ub.DiagonalGaussian(jnp.zeros(1), jnp.ones(1)), model, memory=memory)
    found = shown(unbayes, path)
    assert found["model"]["class"] == "DensityModel"
    assert found["model"]["functions"] == ["model.prior_log_density", "model.record_log_density"]
    assert (found["parameters"], found["memory"]["coreset"]) == (1, 2)


def test_inducing_inputs_are_shown_by_their_shape(unbayes, tmp_path):
    path = tmp_path / "gp.unbayes"
    model = ub.sparse_gp(
        jnp.linspace(-2, 2, 5)[:, None], ub.Matern(1.5, 0.7), ub.GaussianLikelihood(0.25), jitter=1e-4
    )
    ub.save(path, model.prior, model)
    found = shown(unbayes, path)["model"]
    assert "locations=5×1 numbers" in found["features"]
    assert "variance=1.5" in found["features"]
    assert "0.25" in found["likelihood"]


def test_statistics(unbayes, statistics):
    path, found = statistics
    assert shown(unbayes, path) == {
        "file": str(path),
        "kind": "statistics",
        "library": ub.__version__,
        "format": 2,
        "records": 20,
        "origin": found.origin,
        "ids": 20,
    }
    done = unbayes("show", path)
    assert found.origin in done.stdout
    assert "record 7" not in done.stdout


@pytest.mark.long
def test_a_flow_in_a_new_process(tmp_path):
    """The class of the posterior is one that nothing else imports; the types are double."""
    path = tmp_path / "flow.unbayes"
    flow = ub.AutoregressiveFlow.standard(2, layers=1, width=4, key=KEY)
    assert flow.dtype == jnp.float64
    ub.save(path, flow, ub.logistic_regression(1))
    done = start(["-m", "unbayes.cli"], "show", path, "--json", JAX_ENABLE_X64="false")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["posterior"], found["parameters"], found["dtype"]) == ("AutoregressiveFlow", 2, "float64")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "no such file or directory"),
        (b"", "it is damaged, cut short or not a zip file"),
        (b"age,dose,healed\n1,2,0\n", "it is damaged, cut short or not a zip file"),
    ],
)
def test_what_is_no_saved_file_is_refused(refused, tmp_path, content, reason):
    path = tmp_path / "some.unbayes"
    if content is not None:
        path.write_bytes(content)
    assert f"{path} cannot be read: {reason}" in refused("show", path)


def test_a_damaged_file_is_refused(refused, files, text):
    whole = files.full.read_bytes()
    path = text(whole[: len(whole) // 2], "half.unbayes")
    assert "cannot be read: it is damaged" in refused("show", path)


def test_a_folder_is_refused(refused, tmp_path):
    assert "it is a directory" in refused("show", tmp_path)


def test_erasures_of_another_kind_are_refused(refused, tmp_path):
    path = tmp_path / "beta.unbayes"
    ub.save(path, ub.Beta(2.0, 3.0), notes={"erasures": 3})
    assert "hold erasures that unbayes erase did not write" in refused("show", path)


# Edits of a file whose checksums are made right again, and what is said of it, or that it is shown.
FORGED = {
    "no posterior": (lambda m: m.update(posterior=3), "posterior +unknown"),
    "a posterior that wants a function": (
        lambda m: m["posterior"]["fields"].update(mean={"function": "f"}),
        "posterior +FullGaussian",
    ),
    "notes that are a word": (lambda m: m.update(notes="word"), "its notes are no dict"),
    "an erasure without words": (lambda m: m["notes"].update(erasures=[{}]), "unknown records by unknown on"),
    "doubts that are a number": (
        lambda m: m["notes"].update(erasures=[{"doubts": 3}]),
        "hold erasures that unbayes erase did not write",
    ),
    "a tower of tuples": (lambda m: m.update(memory=_tower(400)), "nested in more than 100 levels"),
    "colours": (lambda m: m["notes"].update(target="\x1b[31mred"), r"target +\\x1b\[31mred"),
    "colours in a refusal": (lambda m: m.update(kind="\x1b[31mred"), r"it holds \\x1b\[31mred, not model"),
}


def _tower(levels):
    node = 1
    for _ in range(levels):
        node = {"tuple": [node]}
    return node


@pytest.mark.parametrize("name", FORGED)
def test_forged_files_get_a_sentence(unbayes, files, tmp_path, name):
    edit, sentence = FORGED[name]
    path = tmp_path / "forged.unbayes"
    path.write_bytes(files.full.read_bytes())
    tamper(path, edit)
    done = unbayes("show", path)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert re.search(sentence, done.output)
    assert "\x1b" not in done.output
