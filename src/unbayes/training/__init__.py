"""Training: from records to a posterior."""

from unbayes.training.base import AbstractTraining as AbstractTraining
from unbayes.training.base import Trained as Trained
from unbayes.training.fit import fit as fit
from unbayes.training.refine import refine as refine
