"""Attacks: what adversarial clients send or train on. Similar attacks share a file."""

from steelyard.attacks.base import Attack
from steelyard.attacks.colluding import ALittleIsEnough, Copies, InnerProduct, Oversized
from steelyard.attacks.labels import LabelFlip, RandomLabels
from steelyard.attacks.malformed import ExtraTensor, MissingTensor, NonFinite, WrongDtype, WrongShape
from steelyard.attacks.replies import InflatedCount, Tail, VarianceDeflation
from steelyard.attacks.timing import OnOff
from steelyard.attacks.vectors import Gaussian, Scaled, SignFlip

__all__ = [
    "ALittleIsEnough",
    "Attack",
    "Copies",
    "ExtraTensor",
    "Gaussian",
    "InflatedCount",
    "InnerProduct",
    "LabelFlip",
    "MissingTensor",
    "NonFinite",
    "OnOff",
    "Oversized",
    "RandomLabels",
    "Scaled",
    "SignFlip",
    "Tail",
    "VarianceDeflation",
    "WrongDtype",
    "WrongShape",
]
