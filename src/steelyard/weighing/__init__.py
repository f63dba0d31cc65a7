"""Who counts, and how much? One rule a file."""

from steelyard.weighing.base import Weigher
from steelyard.weighing.samples import Samples
from steelyard.weighing.uniform import Uniform

__all__ = ["Samples", "Uniform", "Weigher"]
