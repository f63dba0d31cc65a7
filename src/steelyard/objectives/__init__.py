"""Objectives: what a client minimises. One file each."""

from steelyard.objectives.alignment import Alignment
from steelyard.objectives.anchor import Anchor
from steelyard.objectives.base import Objective
from steelyard.objectives.cross_entropy import CrossEntropy
from steelyard.objectives.distillation import Distillation
from steelyard.objectives.elbo import Elbo
from steelyard.objectives.proximal import Proximal
from steelyard.objectives.squared_error import SquaredError

__all__ = [
    "Alignment",
    "Anchor",
    "CrossEntropy",
    "Distillation",
    "Elbo",
    "Objective",
    "Proximal",
    "SquaredError",
]
