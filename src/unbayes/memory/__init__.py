"""What training keeps of the training set, for later unlearning."""

from unbayes.memory.kinds import Coreset as Coreset
from unbayes.memory.kinds import Curvature as Curvature
from unbayes.memory.kinds import Keep as Keep
from unbayes.memory.kinds import Sums as Sums
from unbayes.memory.kinds import kinds_of as kinds_of
from unbayes.memory.memory import Memory as Memory
from unbayes.memory.remember import keep as keep
from unbayes.memory.remember import remember as remember
