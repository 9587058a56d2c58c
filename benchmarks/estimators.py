"""The scikit-learn estimators against their nearest rivals there: scores, and time to fit as a ratio.

`python benchmarks/estimators.py` writes estimators.md.
"""

import os
import time
import warnings
from pathlib import Path

import numpy as np
from rich.console import Console
from sklearn.base import clone, is_classifier
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, scale
from threadpoolctl import threadpool_limits

from unbayes.adapters.sklearn import (
    BayesianLinearRegression,
    BayesianLogisticRegression,
    SparseGPClassifier,
    SparseGPRegressor,
)

LINEAR = (BayesianLinearRegression(), BayesianRidge())
LOGISTIC = (BayesianLogisticRegression(random_state=0), LogisticRegression())
PROCESS = (SparseGPClassifier(random_state=0), GaussianProcessClassifier(random_state=0))
TUNED = (SparseGPClassifier(random_state=0), GaussianProcessClassifier(1.0 * RBF(4.0), random_state=0))
SMOOTH = (
    SparseGPRegressor(random_state=0),
    GaussianProcessRegressor(1.0 * RBF(4.0) + WhiteKernel(), normalize_y=True, random_state=0),
)
PAIRS = {
    "diabetes": (load_diabetes, [LINEAR, SMOOTH]),
    "breast cancer": (load_breast_cancer, [LOGISTIC, PROCESS, TUNED]),
    "wine": (load_wine, [LOGISTIC, PROCESS, TUNED]),
    "digits": (load_digits, [LOGISTIC, PROCESS]),
}
console = Console()
if hasattr(os, "sched_setaffinity"):
    # Before JAX counts them: one core for everybody, as threads that wait for others would be charged to us.
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def score(estimator, X, y) -> float:
    """Accuracy or R², over five folds, inputs standardised."""
    folds = StratifiedKFold if is_classifier(estimator) else KFold
    steps = make_pipeline(StandardScaler(), clone(estimator))
    return float(cross_val_score(steps, X, y, cv=folds(5, shuffle=True, random_state=0)).mean())


def fit_seconds(estimators, X, y, repetitions: int = 20) -> np.ndarray:
    """Processor time of fitting each estimator, the best of several turns, after a first one to compile."""
    times = np.full((repetitions + 1, len(estimators)), np.inf)
    for turn in range(repetitions + 1):
        for column, estimator in enumerate(estimators):
            started = time.process_time()
            clone(estimator).fit(X, y)
            times[turn, column] = time.process_time() - started
    return times[1:].min(0)


def main() -> None:
    """Measure and write."""
    lines = [
        "# The scikit-learn estimators beside their nearest rivals\n",
        "Score: accuracy, R² for diabetes, over five folds with standardised inputs.",
        "Seconds: processor time to fit all rows, on one core, compiled; only ratios travel.",
        "Rivals that are printed with a kernel tune it.\n",
        "| data | estimator | rival | score | its score | seconds | its seconds | ratio |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, (load, pairs) in PAIRS.items():
        X, y = load(return_X_y=True)
        for pair in pairs:
            large = name == "digits"
            with threadpool_limits(1), warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                own, its = fit_seconds(pair, scale(X), y, 3 if large else 20)
                scores = [score(estimator, X, y) for estimator in pair]
            cells = [
                name,
                type(pair[0]).__name__,
                " ".join(str(pair[1]).split()),
                *(f"{value:.4f}" for value in scores),
                f"{own:.4f}",
                f"{its:.4f}",
                f"{own / its:.2f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
            console.print(lines[-1])
            Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
