"""How are they merged? One rule a file."""

from steelyard.combining.base import Combiner
from steelyard.combining.mean import Mean

__all__ = ["Combiner", "Mean"]
