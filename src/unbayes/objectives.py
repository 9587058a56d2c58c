"""The paper's objectives, equation by equation."""

from unbayes.inference.objectives import cross_entropy as cross_entropy
from unbayes.inference.objectives import elbo as elbo
from unbayes.inference.objectives import eubo as eubo
from unbayes.inference.objectives import log_adjusted_likelihood as log_adjusted_likelihood
from unbayes.inference.objectives import removal_log_weights as removal_log_weights
