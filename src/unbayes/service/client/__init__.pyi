from .calling import NoAnswer as NoAnswer
from .calling import ServiceProblem as ServiceProblem
from .calling import TooManyCalls as TooManyCalls
from .client import Client as Client
