"""All experiments, in the order in which a report shows them."""

from unbayes.experiments.airline import AIRLINE
from unbayes.experiments.banknote import BANKNOTE
from unbayes.experiments.bimodal import BIMODAL
from unbayes.experiments.bounds import BOUNDS
from unbayes.experiments.classification import INFORMATION, MOON
from unbayes.experiments.cubic import LINEAR
from unbayes.experiments.fashion import FASHION
from unbayes.experiments.gamma import GAMMA
from unbayes.experiments.sequential import SEQUENTIAL

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        BOUNDS,
        GAMMA,
        MOON,
        INFORMATION,
        BANKNOTE,
        FASHION,
        AIRLINE,
        LINEAR,
        BIMODAL,
        SEQUENTIAL,
    )
}
