"""Objectives: what a client minimises. One file each."""

from steelyard.objectives.alignment import Alignment
from steelyard.objectives.anchor import Anchor
from steelyard.objectives.auto import Auto
from steelyard.objectives.base import Objective
from steelyard.objectives.binary_cross_entropy import BinaryCrossEntropy
from steelyard.objectives.cross_entropy import CrossEntropy
from steelyard.objectives.distillation import Distillation
from steelyard.objectives.elbo import Elbo
from steelyard.objectives.focal import Focal
from steelyard.objectives.model_loss import ModelLoss
from steelyard.objectives.proximal import Proximal
from steelyard.objectives.squared_error import SquaredError

__all__ = [
    "Alignment",
    "Anchor",
    "Auto",
    "BinaryCrossEntropy",
    "CrossEntropy",
    "Distillation",
    "Elbo",
    "Focal",
    "ModelLoss",
    "Objective",
    "Proximal",
    "SquaredError",
]
