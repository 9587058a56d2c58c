"""Likelihoods p(y|f) of a predictor f, one kind a file, written for one record."""

from unbayes.models.likelihoods.base import AbstractLikelihood as AbstractLikelihood
from unbayes.models.likelihoods.base import Integrals as Integrals
from unbayes.models.likelihoods.bernoulli import BernoulliLikelihood as BernoulliLikelihood
from unbayes.models.likelihoods.bernoulli import log_sigmoid as log_sigmoid
from unbayes.models.likelihoods.categorical import CategoricalLikelihood as CategoricalLikelihood
from unbayes.models.likelihoods.gaussian import GaussianLikelihood as GaussianLikelihood
from unbayes.models.likelihoods.heteroscedastic import (
    HeteroscedasticLikelihood as HeteroscedasticLikelihood,
)
from unbayes.models.likelihoods.integrated import IntegratedLikelihood as IntegratedLikelihood
from unbayes.models.likelihoods.poisson import PoissonLikelihood as PoissonLikelihood
from unbayes.models.likelihoods.probit import ProbitLikelihood as ProbitLikelihood
from unbayes.models.likelihoods.softplus_poisson import (
    SoftplusPoissonLikelihood as SoftplusPoissonLikelihood,
)
from unbayes.models.likelihoods.student_t import StudentTLikelihood as StudentTLikelihood
from unbayes.models.likelihoods.student_t import StudentTPredictive as StudentTPredictive
from unbayes.models.likelihoods.targets import require_counts as require_counts
from unbayes.models.likelihoods.targets import require_labels as require_labels
from unbayes.models.likelihoods.weighted import WeightedLikelihood as WeightedLikelihood
