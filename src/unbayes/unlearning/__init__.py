"""Unlearning: from a posterior and the erased records to the posterior without them."""

from unbayes.unlearning.base import AbstractAdjustedMethod as AbstractAdjustedMethod
from unbayes.unlearning.base import AbstractMethod as AbstractMethod
from unbayes.unlearning.calls import solve as solve
from unbayes.unlearning.calls import summarise as summarise
from unbayes.unlearning.calls import sweep as sweep
from unbayes.unlearning.calls import unlearn as unlearn
from unbayes.unlearning.result import Solution as Solution
from unbayes.unlearning.result import Unlearned as Unlearned
from unbayes.unlearning.statistics import Statistics as Statistics
