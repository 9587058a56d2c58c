"""Versions of a ledger's model in a real registry, in SQLite."""

import os
import warnings

import jax
import numpy as np
import pytest

# Nothing leaves the machine.
os.environ["MLFLOW_DISABLE_TELEMETRY"] = os.environ["DO_NOT_TRACK"] = "true"
with warnings.catch_warnings():
    warnings.filterwarnings("ignore", ".*Any type hint is inferred as AnyType", UserWarning)
    mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")
    pyfunc = pytest.importorskip("mlflow.pyfunc", reason="needs the extra mlflow")

import unbayes as ub
from ledger.conftest import clock, ledger, setting  # noqa: F401
from ledger.setting import ask
from service.serving import serving
from unbayes.adapters.mlflow import Predictor, log_model, promote
from unbayes.ledger import LedgerError, NotFound, verify_report
from unbayes.ledger.tokens import Scope

pytestmark = [
    pytest.mark.long,
    # SQLAlchemy, of what MLflow asks it.
    pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy is deprecated"),
    pytest.mark.filterwarnings("ignore:.*Any type hint is inferred as AnyType:UserWarning"),
]
INPUTS = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]])


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A registry that the module shares, since making its tables takes seconds."""
    folder = tmp_path_factory.mktemp("mlflow")
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(f"sqlite:///{folder}/registry.sqlite")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The ``noload`` loader strategy is deprecated")
        mlflow.create_experiment("models", artifact_location=(folder / "artifacts").as_uri())
        mlflow.set_experiment("models")
    yield folder
    mlflow.set_tracking_uri(before)


@pytest.fixture
def name(store, request):
    """A name of its own in it."""
    return request.node.name


def tags(version):
    return {key.removeprefix("unbayes."): value for key, value in version.tags.items()}


def load(place):
    return pyfunc.load_model(place)


def test_the_registry_shows_what_is_in_production(ledger, setting, name):  # noqa: F811
    first = log_model(ledger, "m", name=name, alias="production")
    assert tags(first)["version"] == "1"
    assert "verdict" not in tags(first)
    ask(ledger, setting, 3, 4)
    ledger.apply("m")
    second = log_model(ledger, "m", name=name)
    registry = mlflow.MlflowClient()
    assert tags(registry.get_model_version_by_alias(name, "production"))["version"] == "1"
    promote(name)
    current, told = ledger.current("m"), tags(registry.get_model_version_by_alias(name, "production"))
    assert second.version == registry.get_model_version_by_alias(name, "production").version
    assert (told["version"], told["erased"], told["base"]) == ("2", "2", "1")
    assert (told["verdict"], told["digest"]) == (current.verdict, current.digest)
    assert float(told["predicted_error"]) == current.findings["error"]["nats"]
    assert "without 2 records" in second.description


def test_its_run_holds_the_reports(ledger, setting, name, tmp_path):  # noqa: F811
    for row in (1, 2):
        ask(ledger, setting, row)
    ledger.apply("m")
    ask(ledger, setting, 5)
    ledger.apply("m")
    logged = log_model(ledger, "m", name=name)
    folder = mlflow.artifacts.download_artifacts(
        run_id=logged.run_id, artifact_path="reports", dst_path=str(tmp_path)
    )
    assert os.listdir(folder) == ["request-3.json"]
    with open(f"{folder}/request-3.json", "rb") as file:
        verified = verify_report(file.read(), ledger.public_key)
    assert verified.contents.into.version == 3
    assert tags(logged)["reports"] == "[3]"


def test_what_was_loaded_predicts_as_the_model_does(ledger, setting, name, tmp_path):  # noqa: F811
    import pandas

    ask(ledger, setting, 3, 4)
    ledger.apply("m")
    log_model(ledger, "m", name=name, alias="production")
    loaded = load(f"models:/{name}@production")
    posterior = setting.without(3, 4)
    expected = setting.model.predictive(posterior, INPUTS)
    answer = loaded.predict(INPUTS)
    np.testing.assert_allclose(answer["decision"], expected.mean, rtol=1e-6)
    np.testing.assert_allclose(answer["standard_deviation"], np.sqrt(expected.variance), rtol=1e-6)
    table = pandas.DataFrame({"b": INPUTS[:, 1], "other": 0.0, "a": INPUTS[:, 0]})
    np.testing.assert_array_equal(loaded.predict(table)["decision"], answer["decision"])
    with pytest.raises(ValueError, match="must have the columns b"):
        loaded.predict(table[["a"]])


def test_classes_have_probabilities(setting, tmp_path):  # noqa: F811
    model = ub.logistic_regression(2, prior_scale=3.0)
    ub.save(tmp_path / "m.unbayes", setting.trained.posterior, model)
    answer = Predictor((tmp_path / "m.unbayes").read_bytes()).predict(INPUTS)
    expected = model.predictive(setting.trained.posterior, INPUTS)
    np.testing.assert_allclose(answer["probabilities"], expected.probabilities, rtol=1e-6)
    np.testing.assert_array_equal(answer["decision"], expected.decision())
    assert set(answer) == {"probabilities", "decision"}


def test_a_table_is_encoded_as_training_records_were(setting, tmp_path):  # noqa: F811
    import pandas

    columns = ub.Columns([ub.Column("a", mean=1.0, scale=2.0), "b"], "y")
    ub.save(tmp_path / "m.unbayes", setting.trained.posterior, setting.model, columns=columns)
    predictor = Predictor((tmp_path / "m.unbayes").read_bytes(), ["a", "b"])
    table = pandas.DataFrame({"b": INPUTS[:, 1], "a": 2 * INPUTS[:, 0] + 1})
    expected = setting.model.predictive(setting.trained.posterior, INPUTS)
    np.testing.assert_allclose(predictor.predict(table)["decision"], expected.mean, rtol=1e-6)


def test_a_version_is_logged_once(ledger, setting, name):  # noqa: F811
    first = log_model(ledger, "m", name=name)
    assert log_model(ledger, "m", name=name, alias="staging").version == first.version
    assert len(mlflow.MlflowClient().search_model_versions(f"name='{name}'")) == 1


def test_files_that_know_who_was_erased_are_destroyed(ledger, setting, name, store):  # noqa: F811
    registry, before = mlflow.MlflowClient(), files_in(store)
    first = log_model(ledger, "m", name=name, alias="production")
    registry.set_registered_model_alias(name, "staging", first.version)
    (old,) = files_in(store) - before
    ask(ledger, setting, 3)
    ledger.apply("m")
    log_model(ledger, "m", name=name, alias="production")
    (new,) = files_in(store) - before
    assert new != old
    assert new.read_bytes() == ledger.current_file("m")[1]
    assert registry.get_registered_model(name).aliases == {"production": 2}
    assert "destroyed" in tags(registry.get_model_version(name, "1"))
    with pytest.raises((mlflow.MlflowException, OSError)):
        load(f"models:/{name}/1")
    with pytest.raises(NotFound, match="version 1 of"):
        promote(name, version=1)


def files_in(store):
    return set((store / "artifacts").rglob("*.unbayes"))


def test_files_are_kept_on_request(ledger, setting, name):  # noqa: F811
    log_model(ledger, "m", name=name)
    ask(ledger, setting, 3)
    ledger.apply("m")
    log_model(ledger, "m", name=name)
    promote(name, keep_older=True)
    assert load(f"models:/{name}/1").predict(INPUTS)["decision"].shape == (3,)


def test_by_a_client_it_is_the_same(ledger, setting, name):  # noqa: F811
    ask(ledger, setting, 3)
    ledger.apply("m")
    token = ledger.tokens.create("registry", [Scope.OPERATE, Scope.PREDICT])[1]
    with serving(ledger) as address, ub.Client(address, token) as client:
        by_client = log_model(client, "m", name=name)
    assert by_client.version == log_model(ledger, "m", name=name).version
    assert tags(by_client)["reports"] == "[1]"


def test_nothing_is_pickled(ledger, name, store):  # noqa: F811
    logged = log_model(ledger, "m", name=name)
    folder = mlflow.artifacts.download_artifacts(f"models:/{name}/{logged.version}")
    found = [file for _, _, files in os.walk(folder) for file in files]
    assert [each for each in found if each.endswith((".unbayes", ".pkl", ".pickle"))] == ["model.unbayes"]
    with open(os.path.join(folder, "MLmodel")) as file:
        text = file.read()
    assert "loader_module: unbayes.adapters.mlflow" in text
    assert "cloudpickle" not in text


def test_what_predicts_nothing_is_refused(ledger, tmp_path, name):  # noqa: F811
    model = ub.BetaBernoulli(ub.Beta(1.0, 1.0))
    trained = ub.fit(model, np.array([1.0, 0.0, 1.0]), ids=["1", "2", "3"], key=jax.random.key(0))
    ub.save(tmp_path / "b.unbayes", trained.posterior, model, memory=trained.memory, notes={"target": "y"})
    ledger.register("b", tmp_path / "b.unbayes", ids="id", target="y")
    with pytest.raises(LedgerError, match="b predicts nothing"):
        log_model(ledger, "b", name=name)
    with pytest.raises(NotFound, match="a version of"):
        promote(name)
    with pytest.raises(LedgerError, match="quotation mark"):
        promote("it's")
