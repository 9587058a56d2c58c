"""A registry of MLflow that shows which version of a ledger's model is in production, and why.

MLflow loads a version by `_load_pyfunc`, from the file alone: no pickle is written or read.
"""

from unbayes.adapters.mlflow.predicting import Predictor as Predictor
from unbayes.adapters.mlflow.predicting import _load_pyfunc as _load_pyfunc
from unbayes.adapters.mlflow.registering import log_model as log_model
from unbayes.adapters.mlflow.registering import promote as promote
