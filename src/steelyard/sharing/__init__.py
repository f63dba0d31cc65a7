"""What travels? One answer a file."""

from steelyard.sharing.base import Sharing
from steelyard.sharing.posterior import Posterior
from steelyard.sharing.whole_model import WholeModel

__all__ = ["Posterior", "Sharing", "WholeModel"]
