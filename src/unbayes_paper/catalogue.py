"""All experiments, in the order in which a report shows them."""

from unbayes_paper.airline import AIRLINE
from unbayes_paper.banknote import BANKNOTE
from unbayes_paper.bimodal import BIMODAL
from unbayes_paper.bounds import BOUNDS
from unbayes_paper.classification import INFORMATION, MOON
from unbayes_paper.cubic import LINEAR
from unbayes_paper.fashion import FASHION
from unbayes_paper.gamma import GAMMA
from unbayes_paper.sequential import SEQUENTIAL

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
