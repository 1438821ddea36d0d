"""How to set up and train a network: initialisation on its data, learning rates of every layer."""

from dynagram.advice._advise import Advice, advise
from dynagram.advice._initialise import initialise
from dynagram.advice._others import Start
from dynagram.advice._rates import OPTIMIZERS, Rates, advise_rates
from dynagram.advice._sentences import Sentence
from dynagram.theory.criticality._operating_point import OperatingPoint, operating_point

__all__ = [
    "OPTIMIZERS",
    "Advice",
    "OperatingPoint",
    "Rates",
    "Sentence",
    "Start",
    "advise",
    "advise_rates",
    "initialise",
    "operating_point",
]
