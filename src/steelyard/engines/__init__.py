"""Where does the clients' work run? Every engine gives the same bits."""

from steelyard.engines.auto import Auto
from steelyard.engines.base import Engine
from steelyard.engines.pool import Pool
from steelyard.engines.serial import Serial

__all__ = ["Auto", "Engine", "Pool", "Serial"]
