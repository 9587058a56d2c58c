"""Erasures of many kinds, to test verdicts on: data set × what is erased × family of the posterior.

`tables.py` has the data and their models, `erasures.py` what is erased of any table, `altered.py` the tables
whose records were tampered with, and `collect.py` puts all of it together. No limit was set on the tables of
`held_back.py`.
"""

from unbayes_paper.scenarios.collect import Scenario as Scenario
from unbayes_paper.scenarios.collect import held_back_scenarios as held_back_scenarios
from unbayes_paper.scenarios.collect import scenarios as scenarios
from unbayes_paper.scenarios.tables import standardise as standardise
