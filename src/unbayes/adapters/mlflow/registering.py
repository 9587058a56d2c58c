"""Versions of a ledger's model in a registry, each with its verdict and the reports on what it left out."""

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow
import mlflow.pyfunc
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

from unbayes._version import __version__
from unbayes.adapters.mlflow.predicting import Predictor
from unbayes.ledger.clock import to_text, utc_now
from unbayes.ledger.errors import LedgerError, NotFound
from unbayes.ledger.states import TAKEN_OUT
from unbayes.service.client import Client

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

    from unbayes.ledger import Ledger

PRODUCTION = "production"
LOADER = "unbayes.adapters.mlflow"
FILE = "model.unbayes"
# Names of tags begin with it.
OURS = "unbayes."


@dataclasses.dataclass(frozen=True)
class Found:
    """A current version, its file, and the reports on the requests that it took out."""

    version: Any
    data: bytes
    inputs: list[str]
    reports: dict[int, bytes]


def log_model(
    source: "Ledger | Client", model: str, *, name: str | None = None, alias: str | None = None
) -> "ModelVersion":
    """Log the current version of a model, once, and register it.

    Its run holds the signed reports on the requests that this version took out, as far as they are there, and
    what unlearning said. Its tags say the version of the ledger, the verdict and the predicted error.

    Parameters
    ----------
    source
        The ledger, or a client of a service over it; this needs the scopes operate and predict.
    model
        What the model is called there.
    name
        What it is called in the registry; as in the ledger unless given.
    alias
        Given to it at once, as by `promote`.
    """
    name, found = name or model, _read(source, model)
    if not hasattr(Predictor(found.data).saved.model, "predictive"):
        raise LedgerError(f"{model} predicts nothing from inputs, so a registry cannot serve it")
    registry = mlflow.MlflowClient()
    logged = _known(registry, name, found.version.digest) or _log(registry, found, model, name)
    if alias is not None:
        promote(name, version=found.version.number, alias=alias)
    return registry.get_model_version(name, logged.version)


def promote(
    name: str, *, version: int | None = None, alias: str = PRODUCTION, keep_older: bool = False
) -> "ModelVersion":
    """Move an alias to a version, and destroy the files of those before it, which know who was erased since.

    The entries of older versions stay in the registry, with the time when their files were destroyed; their
    aliases go.

    Parameters
    ----------
    name
        Of the model in the registry.
    version
        Number in the ledger; the newest unless given.
    alias
        What is moved.
    keep_older
        Keep the files of older versions. Then somebody else has to see to it that they end.
    """
    registry = mlflow.MlflowClient()
    logged = [each for each in _ours(registry, name) if not _is_destroyed(each)]
    fitting = [each for each in logged if version in (None, _number(each))]
    if not fitting:
        wanted = "a version" if version is None else f"version {version}"
        raise NotFound(f"{wanted} of {name} is not in the registry; log_model brings it there")
    chosen = max(fitting, key=_number)
    registry.set_registered_model_alias(name, alias, chosen.version)
    if not keep_older:
        for each in logged:
            if _number(each) < _number(chosen):
                _destroy(registry, each)
    return registry.get_model_version(name, chosen.version)


def _read(source: "Ledger | Client", model: str) -> Found:
    if isinstance(source, Client):
        current = source.current(model)
        version = next(each for each in source.versions(model) if each.number == current.version)
        data, inputs = current.data, source.model(model).inputs
        requests = source.requests(model, states=TAKEN_OUT)
        numbers = [each.number for each in requests if each.version == version.number]
    else:
        version, data = source.current_file(model)
        inputs = [each.name for each in source.model(model).columns.inputs]
        requests = source.requests(model, states=TAKEN_OUT, limit=None)
        numbers = [each.id for each in requests if each.version == version.number]
    reports = {}
    for number in sorted(numbers):
        try:
            reports[number] = source.report(number)
        except NotFound:
            # It is being signed just now.
            continue
    return Found(version, data, list(inputs), reports)


def _log(registry: mlflow.MlflowClient, found: Found, model: str, name: str) -> "ModelVersion":
    tags = _tags(found, model)
    with (
        tempfile.TemporaryDirectory() as folder,
        mlflow.start_run(run_name=f"{model} version {found.version.number}", nested=True) as run,
    ):
        file = Path(folder) / FILE
        file.write_bytes(found.data)
        mlflow.set_tags(tags)
        for number, report in found.reports.items():
            mlflow.log_text(report.decode(), f"reports/request-{number}.json")
        mlflow.log_dict(found.version.findings, "findings.json")
        logged = mlflow.pyfunc.log_model(
            name="model",
            loader_module=LOADER,
            data_path=str(file),
            pip_requirements=[f"unbayes[mlflow]=={__version__}"],
            model_config={"inputs": found.inputs},
            metadata=tags,
        )
    version = mlflow.register_model(f"models:/{logged.model_id}", name, tags=tags)
    registry.update_model_version(name, version.version, description=_sentence(found, model))
    assert run.info.run_id
    return version


def _tags(found: Found, model: str) -> dict[str, str]:
    version, error = found.version, (found.version.findings or {}).get("error")
    said = {
        "model": model,
        "version": str(version.number),
        "digest": version.digest,
        "kind": version.kind,
        "base": str(version.base),
        "erased": str(version.erased),
        "verdict": version.verdict,
        "predicted_error": None if error is None else json.dumps(error["nats"]),
        "reports": json.dumps(list(found.reports)),
    }
    return {OURS + key: value for key, value in said.items() if value is not None}


def _sentence(found: Found, model: str) -> str:
    version = found.version
    if version.verdict is None:
        return f"Version {version.number} of {model}, as it was trained."
    return (
        f"Version {version.number} of {model}: version {version.base} without {version.erased} records. "
        f"Verdict: {version.verdict}."
    )


def _ours(registry: mlflow.MlflowClient, name: str) -> "list[ModelVersion]":
    """The versions of that name that came from a ledger."""
    if "'" in name:
        raise LedgerError("name must not have a quotation mark")
    found, token = [], None
    while True:
        page = registry.search_model_versions(f"name='{name}'", page_token=token)
        found += [each for each in page if f"{OURS}version" in each.tags]
        token = page.token
        if not token:
            return found


def _known(registry: mlflow.MlflowClient, name: str, digest: str) -> "ModelVersion | None":
    same = (each for each in _ours(registry, name) if each.tags.get(f"{OURS}digest") == digest)
    return next((each for each in same if not _is_destroyed(each)), None)


def _number(logged: "ModelVersion") -> int:
    return int(logged.tags[f"{OURS}version"])


def _is_destroyed(logged: "ModelVersion") -> bool:
    return f"{OURS}destroyed" in logged.tags


def _destroy(registry: mlflow.MlflowClient, logged: "ModelVersion") -> None:
    """Delete the files of a version, and keep its entry."""
    for alias, version in registry.get_registered_model(logged.name).aliases.items():
        if str(version) == str(logged.version):
            registry.delete_registered_model_alias(logged.name, alias)
    place = registry.get_model_version_download_uri(logged.name, logged.version)
    get_artifact_repository(place).delete_artifacts()
    registry.set_model_version_tag(logged.name, logged.version, f"{OURS}destroyed", to_text(utc_now()))
