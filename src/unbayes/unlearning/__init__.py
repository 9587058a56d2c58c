"""Unlearning: from a posterior and the erased records to the posterior without them."""

from unbayes.unlearning.api import solve as solve
from unbayes.unlearning.api import summarise as summarise
from unbayes.unlearning.api import sweep as sweep
from unbayes.unlearning.api import unlearn as unlearn
from unbayes.unlearning.auto import Auto as Auto
from unbayes.unlearning.bank import BankReverseKL as BankReverseKL
from unbayes.unlearning.base import AbstractAdditiveMethod as AbstractAdditiveMethod
from unbayes.unlearning.base import AbstractAdjustedMethod as AbstractAdjustedMethod
from unbayes.unlearning.base import AbstractIterativeMethod as AbstractIterativeMethod
from unbayes.unlearning.base import AbstractMethod as AbstractMethod
from unbayes.unlearning.base import Statistics as Statistics
from unbayes.unlearning.eubo import EUBO as EUBO
from unbayes.unlearning.exact import Exact as Exact
from unbayes.unlearning.natural_gradient import NaturalGradient as NaturalGradient
from unbayes.unlearning.result import RetrainingNeeded as RetrainingNeeded
from unbayes.unlearning.result import Unlearned as Unlearned
from unbayes.unlearning.reverse_kl import ReverseKL as ReverseKL
from unbayes.unlearning.transport import Transport as Transport
from unbayes.unlearning.trust import Trust as Trust
from unbayes.unlearning.trust import Verdict as Verdict
