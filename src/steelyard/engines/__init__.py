"""Where does the clients' work run? Serial, pool and ray give the same bits; vectorized agrees closely."""

from steelyard.engines.auto import Auto
from steelyard.engines.base import Engine
from steelyard.engines.pool import Pool
from steelyard.engines.ray import Ray
from steelyard.engines.serial import Serial
from steelyard.engines.vectorized import Vectorized

__all__ = ["Auto", "Engine", "Pool", "Ray", "Serial", "Vectorized"]
