"""Predictions by a version that MLflow has loaded."""

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from unbayes.data.scan import scan
from unbayes.models import ClassPredictive, NormalPredictive
from unbayes.storage import load
from unbayes.storage.archive import read_archive


class Predictor:
    """What `mlflow.pyfunc.load_model` wraps.

    Parameters
    ----------
    data
        The file of a version.
    inputs
        Names of its input columns in their order; None where they are not known.
    """

    def __init__(self, data: bytes, inputs: list[str] | None = None):
        with jax.enable_x64(True):
            manifest, _ = read_archive(io.BytesIO(data), "model")
        self.inputs = inputs
        # It predicts in the precision that it was trained in, whatever the process does otherwise.
        self._has_doubles = any(entry["dtype"].endswith("64") for entry in manifest["arrays"].values())
        with jax.enable_x64(self._has_doubles):
            self.saved = load(io.BytesIO(data))

    def predict(self, model_input: Any, params: Mapping[str, Any] | None = None) -> dict[str, np.ndarray]:
        """What the model says of inputs, a table with its columns or an array of shape (n, k).

        Returns
        -------
        By name: "decision", the likeliest class or the mean, shape (n,); of classes, "probabilities", shape
        (n, classes); of measured values, "standard_deviation", noise included.

        Parameters
        ----------
        model_input
            The inputs.
        params
            "seed", from which what has to be sampled is drawn; 0 unless given.
        """
        model, posterior = self.saved.model, self.saved.posterior
        with jax.enable_x64(self._has_doubles):
            key = jax.random.key(int((params or {}).get("seed", 0)))
            found = model.predictive(posterior, self._array(model_input), key=key)  # pyright: ignore
            answer = {"decision": np.asarray(found.decision())}
            if isinstance(found, ClassPredictive):
                answer["probabilities"] = np.asarray(found.probabilities)
            if isinstance(found, NormalPredictive):
                answer["standard_deviation"] = np.sqrt(np.asarray(found.variance))
        return answer

    def _array(self, table: Any) -> np.ndarray:
        columns = self.saved.columns
        if self.inputs is not None and hasattr(table, "columns"):
            if missing := [name for name in self.inputs if name not in table.columns]:
                raise ValueError(f"the inputs must have the columns {', '.join(missing)}")
            if columns is None or columns.is_plain:
                table = table[self.inputs]
            else:
                table = np.concatenate(
                    [each.records for each in scan(table, columns=columns.inputs).batches()]
                )
        return np.asarray(table, np.float64 if self._has_doubles else np.float32)


def _load_pyfunc(path: str | os.PathLike[str], model_config: Mapping[str, Any] | None = None) -> Predictor:
    """As MLflow calls it, with the file that `log_model` gave it."""
    return Predictor(Path(path).read_bytes(), (model_config or {}).get("inputs"))
