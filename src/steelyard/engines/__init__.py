"""Where the clients' work runs."""

from steelyard.engines.base import Engine, Session, Workload, one_thread
from steelyard.engines.serial import Serial

__all__ = ["Engine", "Serial", "Session", "Workload", "one_thread"]
