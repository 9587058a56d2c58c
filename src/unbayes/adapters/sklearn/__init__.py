"""scikit-learn estimators that unlearn: `fit`, `predict`, and later `unlearn(X, y)`."""

from unbayes.adapters.sklearn.gaussian_process import SparseGPClassifier as SparseGPClassifier
from unbayes.adapters.sklearn.gaussian_process import SparseGPRegressor as SparseGPRegressor
from unbayes.adapters.sklearn.linear import BayesianLinearRegression as BayesianLinearRegression
from unbayes.adapters.sklearn.linear import BayesianLogisticRegression as BayesianLogisticRegression
from unbayes.adapters.sklearn.pipeline import PipelineUnlearned as PipelineUnlearned
from unbayes.adapters.sklearn.pipeline import unlearn as unlearn
