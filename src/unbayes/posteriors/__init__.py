"""Beliefs over the parameters θ."""

from unbayes.posteriors.base import AbstractExponentialFamily as AbstractExponentialFamily
from unbayes.posteriors.base import AbstractFlow as AbstractFlow
from unbayes.posteriors.base import AbstractPosterior as AbstractPosterior
from unbayes.posteriors.base import AbstractVariational as AbstractVariational
from unbayes.posteriors.conjugate import Beta as Beta
from unbayes.posteriors.conjugate import Dirichlet as Dirichlet
from unbayes.posteriors.conjugate import Gamma as Gamma
from unbayes.posteriors.conjugate import NormalInverseGamma as NormalInverseGamma
from unbayes.posteriors.conjugate import RegressionNatural as RegressionNatural
from unbayes.posteriors.conjugate import Table as Table
from unbayes.posteriors.divergence import gaussian_kl as gaussian_kl
from unbayes.posteriors.divergence import kl_to_natural as kl_to_natural
from unbayes.posteriors.divergence import small_change as small_change
from unbayes.posteriors.gaussian import AbstractGaussian as AbstractGaussian
from unbayes.posteriors.gaussian import DiagonalGaussian as DiagonalGaussian
from unbayes.posteriors.gaussian import FullGaussian as FullGaussian
from unbayes.posteriors.matching import matched_gaussian as matched_gaussian
from unbayes.posteriors.natural import GaussianNatural as GaussianNatural
from unbayes.posteriors.precision import AbstractPrecision as AbstractPrecision
from unbayes.posteriors.precision import DensePrecision as DensePrecision
from unbayes.posteriors.precision import DiagonalPrecision as DiagonalPrecision
