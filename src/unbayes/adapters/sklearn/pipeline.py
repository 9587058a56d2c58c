"""Unlearning through pipelines and searches, to the estimator at their end."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import numpy as np
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
from sklearn.ensemble import StackingClassifier, StackingRegressor
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import PolynomialFeatures, TargetEncoder
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from unbayes.adapters.sklearn.base import AbstractUnlearner
from unbayes.trust import TOLERANCE
from unbayes.unlearning import Unlearned
from unbayes.unlearning.provenance import Missing

# Transformers that make something else of a record in training than later, on purpose.
CROSS_FITTED = (TargetEncoder, StackingClassifier, StackingRegressor)
# Transformers that are fitted, but learn no more than the number of columns.
COUNT_COLUMNS = (PolynomialFeatures,)


@dataclasses.dataclass(frozen=True)
class PipelineUnlearned:
    """What unlearning through a pipeline found, and what it left as it was.

    Attributes
    ----------
    result
        Diagnosis of the estimator at the end, which is its `last_unlearning_` too. Its `caveats` name what
        is in `remembered`.
    remembered
        Fitted steps that saw the erased records and still remember them, by the names that `get_params` has
        for them, each with its class; what a search chose; the cache of a pipeline.
    """

    result: Unlearned
    remembered: tuple[str, ...]

    def __str__(self) -> str:
        return str(self.result)


def unlearn(
    estimator: Any,
    X,
    y,
    sample_weight=None,
    *,
    ids=None,
    missing: Missing = "refuse",
    tolerance: float = TOLERANCE,
) -> PipelineUnlearned:
    """Take records back out of the estimator at the end of a pipeline or a search, in place.

    Goes through `Pipeline`, `GridSearchCV` and its like (to `best_estimator_`) and
    `TransformedTargetRegressor`, in any nesting. The fitted transformers on the way, `ColumnTransformer` and
    `FeatureUnion` among them, transform the records and stay as they are. What they learnt from these records
    they keep; fit anew on the remaining records where that matters.

    Parameters
    ----------
    estimator
        Fitted; at its end is an estimator of `unbayes.adapters.sklearn`.
    X, y
        The erased records, as they were given to `fit` of `estimator`.
    sample_weight
        Their weights, shape (n,), as they were given to `fit`; None where none were.
    ids, missing, tolerance
        As for `unlearn` of the estimators.
    """
    check_is_fitted(estimator)
    end = _reach(estimator, X, y, "")
    caveats = tuple(
        f"{name} was made with the erased records in sight, and still remembers them"
        for name in end.remembered
    )
    result = end.estimator._unlearn(
        end.X, end.y, sample_weight, ids=ids, missing=missing, tolerance=tolerance, caveats=caveats
    )
    return PipelineUnlearned(result, end.remembered)


class _End(NamedTuple):
    """The estimator at the end, the records as it takes them, and what remembers them on the way."""

    estimator: AbstractUnlearner
    X: Any
    y: Any
    remembered: tuple[str, ...] = ()


def _reach(estimator: Any, X, y, path: str) -> _End:
    if isinstance(estimator, AbstractUnlearner):
        return _End(estimator, X, y)
    if isinstance(estimator, Pipeline):
        *steps, (name, last) = estimator.steps
        for step_name, step in steps:
            X = _transformed(step, X, path + step_name)
        seen = [each for step_name, step in steps for each in _remembering(step, path + step_name)]
        return _reach_on(last, X, y, f"{path}{name}__", [*seen, *_cache(estimator, path)])
    if hasattr(estimator, "cv_results_"):
        if not hasattr(estimator, "best_estimator_"):
            raise ValueError(
                "estimator must hold a trained best_estimator_, got "
                f"{_named(estimator, path)} with refit=False"
            )
        return _reach_on(estimator.best_estimator_, X, y, path, [f"{path}best_params_ ({_kind(estimator)})"])
    if isinstance(estimator, TransformedTargetRegressor):
        y = _transformed_targets(estimator, y)
        seen = _remembering(estimator.transformer_, f"{path}transformer")
        return _reach_on(estimator.regressor_, X, y, f"{path}regressor__", seen)
    raise TypeError(
        "estimator must be one of unbayes.adapters.sklearn, or a Pipeline, a search or a "
        f"TransformedTargetRegressor that ends in one, got {_named(estimator, path)}"
    )


def _reach_on(estimator: Any, X, y, path: str, remembered) -> _End:
    end = _reach(estimator, X, y, path)
    return end._replace(remembered=(*remembered, *end.remembered))


def _transformed(step: Any, X, name: str):
    """What a fitted step makes of inputs, which is what it made of them in training."""
    if step is None or isinstance(step, str):
        return X
    for part_name, part in [(name, step), *_parts(step, name)]:
        if isinstance(part, CROSS_FITTED) or not hasattr(part, "transform"):
            raise TypeError(
                f"{_named(part, part_name)} must transform records in training as it does later: "
                "which records the estimator was trained on cannot be told"
            )
    return step.transform(X)


def _transformed_targets(estimator: TransformedTargetRegressor, y):
    """Targets as the regressor saw them."""
    transformer, y = cast(Any, estimator.transformer_), np.asarray(y)
    return np.asarray(transformer.transform(y.reshape(len(y), -1))).reshape(y.shape)


def _parts(step: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Fitted steps within a step, at any depth, that are not composed themselves."""
    if isinstance(step, ColumnTransformer):
        inner = [(part_name, part) for part_name, part, _ in step.transformers_]
    elif isinstance(step, Pipeline):
        inner = step.steps
    elif isinstance(step, FeatureUnion):
        inner = step.transformer_list
    else:
        yield name, step
        return
    for part_name, part in inner:
        # "passthrough" and "drop" are no steps.
        if part is not None and not isinstance(part, str):
            yield from _parts(part, f"{name}__{part_name}")


def _remembering(step: Any, name: str) -> list[str]:
    """Names of the steps within a fitted step that learnt from records."""
    if step is None or isinstance(step, str):
        return []
    found = [_named(part, part_name) for part_name, part in _parts(step, name) if not _is_stateless(part)]
    return [*found, *(_cache(step, f"{name}__") if isinstance(step, Pipeline) else ())]


def _cache(pipeline: Pipeline, path: str) -> list[str]:
    return [] if pipeline.memory is None else [f"{path}memory ({_kind(pipeline)})"]


def _is_stateless(step: Any) -> bool:
    try:
        return isinstance(step, COUNT_COLUMNS) or not get_tags(step).requires_fit
    except AttributeError:
        # Not an estimator of scikit-learn's kind, which would tell.
        return False


def _named(step: Any, path: str) -> str:
    name = path.removesuffix("__")
    return f"{name} ({_kind(step)})" if name else _kind(step)


def _kind(step: Any) -> str:
    return type(step).__name__
