"""Combining rules: merge the clients' messages, given their weights. The barycentres share one file."""

from steelyard.combining.barycenter import Aalv, Alpha, Eaa, ForwardKl, Gaa, Rklb, Wb
from steelyard.combining.base import Combiner
from steelyard.combining.low_rank import LowRank
from steelyard.combining.mean import Mean
from steelyard.combining.median import Median
from steelyard.combining.products import ProductCombiner
from steelyard.combining.trimmed_mean import TrimmedMean

__all__ = [
    "Aalv",
    "Alpha",
    "Combiner",
    "Eaa",
    "ForwardKl",
    "Gaa",
    "LowRank",
    "Mean",
    "Median",
    "ProductCombiner",
    "Rklb",
    "TrimmedMean",
    "Wb",
]
