"""Take data back out of a trained Bayesian model."""

from importlib.metadata import version

from unbayes import metrics as metrics
from unbayes import objectives as objectives
from unbayes.memory import Memory as Memory
from unbayes.models import BernoulliLikelihood as BernoulliLikelihood
from unbayes.models import BetaBernoulli as BetaBernoulli
from unbayes.models import CategoricalLikelihood as CategoricalLikelihood
from unbayes.models import DensityModel as DensityModel
from unbayes.models import DirichletCategorical as DirichletCategorical
from unbayes.models import FunctionFeatures as FunctionFeatures
from unbayes.models import GammaPoisson as GammaPoisson
from unbayes.models import GammaShape as GammaShape
from unbayes.models import GaussianLikelihood as GaussianLikelihood
from unbayes.models import InducingInputs as InducingInputs
from unbayes.models import LinearModel as LinearModel
from unbayes.models import Matern as Matern
from unbayes.models import PoissonLikelihood as PoissonLikelihood
from unbayes.models import PolynomialFeatures as PolynomialFeatures
from unbayes.models import ProbitLikelihood as ProbitLikelihood
from unbayes.models import RawFeatures as RawFeatures
from unbayes.models import SquaredExponential as SquaredExponential
from unbayes.models import UnknownNoiseRegression as UnknownNoiseRegression
from unbayes.models import WhitenedInducingInputs as WhitenedInducingInputs
from unbayes.models import linear_regression as linear_regression
from unbayes.models import logistic_regression as logistic_regression
from unbayes.models import poisson_regression as poisson_regression
from unbayes.models import softmax_regression as softmax_regression
from unbayes.models import sparse_gp as sparse_gp
from unbayes.persistence import load as load
from unbayes.persistence import save as save
from unbayes.posteriors import AutoregressiveFlow as AutoregressiveFlow
from unbayes.posteriors import Beta as Beta
from unbayes.posteriors import DiagonalGaussian as DiagonalGaussian
from unbayes.posteriors import Dirichlet as Dirichlet
from unbayes.posteriors import FullGaussian as FullGaussian
from unbayes.posteriors import Gamma as Gamma
from unbayes.posteriors import NormalInverseGamma as NormalInverseGamma
from unbayes.posteriors import Table as Table
from unbayes.progress import ProgressBar as ProgressBar
from unbayes.training import GradientVI as GradientVI
from unbayes.training import NaturalGradientVI as NaturalGradientVI
from unbayes.training import Trained as Trained
from unbayes.training import fit as fit
from unbayes.training import refine as refine
from unbayes.unlearning import EUBO as EUBO
from unbayes.unlearning import Auto as Auto
from unbayes.unlearning import BankReverseKL as BankReverseKL
from unbayes.unlearning import Exact as Exact
from unbayes.unlearning import NaturalGradient as NaturalGradient
from unbayes.unlearning import RetrainingNeeded as RetrainingNeeded
from unbayes.unlearning import ReverseKL as ReverseKL
from unbayes.unlearning import Statistics as Statistics
from unbayes.unlearning import Transport as Transport
from unbayes.unlearning import Trust as Trust
from unbayes.unlearning import Unlearned as Unlearned
from unbayes.unlearning import Verdict as Verdict
from unbayes.unlearning import solve as solve
from unbayes.unlearning import summarise as summarise
from unbayes.unlearning import sweep as sweep
from unbayes.unlearning import unlearn as unlearn

__version__ = version("unbayes")
