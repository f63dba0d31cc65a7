"""How are they merged? One rule a file."""

from steelyard.combining.base import Combiner
from steelyard.combining.mean import Mean
from steelyard.combining.median import Median
from steelyard.combining.trimmed_mean import TrimmedMean

__all__ = ["Combiner", "Mean", "Median", "TrimmedMean"]
