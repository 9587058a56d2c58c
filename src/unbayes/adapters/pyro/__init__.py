"""Take records back out of a Gaussian guide that was trained with Pyro.

The guide is read as a Gaussian posterior over its flat unconstrained latent, in double precision whatever its
own; the likelihood stays a PyTorch function, differentiated by PyTorch; the result is written back.
"""

from unbayes.adapters.pyro.api import remember as remember
from unbayes.adapters.pyro.api import unlearn as unlearn
