"""What training keeps of the training set, for later unlearning."""

from unbayes.memory.memory import Memory as Memory
from unbayes.memory.remember import keep as keep
from unbayes.memory.remember import remember as remember
