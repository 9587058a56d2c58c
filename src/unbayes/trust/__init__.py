"""How far a result can be trusted: measured, judged by limits that stand in one file, put into words."""

from unbayes.trust.error import PredictedError as PredictedError
from unbayes.trust.judge import judge as judge
from unbayes.trust.limits import TOLERANCE as TOLERANCE
from unbayes.trust.measures import Measures as Measures
from unbayes.trust.verdict import Doubt as Doubt
from unbayes.trust.verdict import RetrainingNeeded as RetrainingNeeded
from unbayes.trust.verdict import Trust as Trust
from unbayes.trust.verdict import Verdict as Verdict
