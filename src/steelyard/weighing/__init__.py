"""Weighing rules: how much each client's update counts. One rule per file."""

from steelyard.weighing.base import Weigher
from steelyard.weighing.centered_clipping import CenteredClipping
from steelyard.weighing.concord import Concord
from steelyard.weighing.consensus import Consensus
from steelyard.weighing.geometric_median import GeometricMedian
from steelyard.weighing.icov import IcovMle
from steelyard.weighing.icov_em import IcovEm
from steelyard.weighing.icov_vb import IcovVb
from steelyard.weighing.ivar import IvarMle, IvarVb
from steelyard.weighing.krum import Krum, MultiKrum
from steelyard.weighing.majority import Majority
from steelyard.weighing.nnm import Nnm
from steelyard.weighing.samples import Samples
from steelyard.weighing.uniform import Uniform

__all__ = [
    "CenteredClipping",
    "Concord",
    "Consensus",
    "GeometricMedian",
    "IcovEm",
    "IcovMle",
    "IcovVb",
    "IvarMle",
    "IvarVb",
    "Krum",
    "Majority",
    "MultiKrum",
    "Nnm",
    "Samples",
    "Uniform",
    "Weigher",
]
