"""Unlearning for GPyTorch: from a sparse Gaussian process and erased records to the process without them.

The module is read as a `LinearModel` and a Gaussian posterior, in double precision whatever its own, and the
result is written back into it. Hyperparameters and inducing inputs stay what they are.
"""

from unbayes.adapters.gpytorch.api import Settled as Settled
from unbayes.adapters.gpytorch.api import remember as remember
from unbayes.adapters.gpytorch.api import settle as settle
from unbayes.adapters.gpytorch.api import unlearn as unlearn
