"""Sharing rules: which part of a model clients and server exchange. One file each."""

from steelyard.sharing.adapter import Adapter
from steelyard.sharing.base import Sharing
from steelyard.sharing.head import Head
from steelyard.sharing.posterior import Posterior
from steelyard.sharing.trainable import Trainable
from steelyard.sharing.whole_model import WholeModel

__all__ = ["Adapter", "Head", "Posterior", "Sharing", "Trainable", "WholeModel"]
