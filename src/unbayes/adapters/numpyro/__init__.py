"""Unlearning for NumPyro: from a model, a trained guide and erased arguments to parameters for the guide."""

from unbayes.adapters.numpyro.api import Settled as Settled
from unbayes.adapters.numpyro.api import UnlearnedGuide as UnlearnedGuide
from unbayes.adapters.numpyro.api import remember as remember
from unbayes.adapters.numpyro.api import settle as settle
from unbayes.adapters.numpyro.api import unlearn as unlearn
