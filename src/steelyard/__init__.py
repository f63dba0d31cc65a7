"""steelyard: federated learning for parties that are unequal and not all to be trusted.

Three doors: `run` a spec or preset, build a `Federation` from your own model and data, or `weigh` and
`combine` updates in your own loop. `flower.serve` and `flower.join` run the same across machines.
"""

import importlib
import logging
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

logging.getLogger("steelyard").addHandler(logging.NullHandler())  # quiet, unless the program asks for more

if TYPE_CHECKING:
    from steelyard.algorithm import Algorithm
    from steelyard.data.clients import Client, Population
    from steelyard.data.dataset import Dataset
    from steelyard.data.examples import examples
    from steelyard.errors import ClientError, InputError, SteelyardError, SteelyardWarning
    from steelyard.functional import combine, weigh
    from steelyard.nn.variational import bayesian
    from steelyard.runs.reader import Run
    from steelyard.runs.writer import Recorder
    from steelyard.server.callbacks import RoundEvent
    from steelyard.server.result import Result
    from steelyard.settings import Server, Training
    from steelyard.simulation import SimulatedFederation as Federation
    from steelyard.specs.loading import load_model
    from steelyard.specs.running import resume, run
    from steelyard.task import Task
    from steelyard.types import Combined, Weighed

# Loaded on first use: `import steelyard` and `steelyard --help` do not wait for torch.
_HOMES = {
    "Algorithm": "algorithm",
    "Client": "data.clients",
    "ClientError": "errors",
    "Combined": "types",
    "Dataset": "data.dataset",
    "Federation": "simulation",
    "InputError": "errors",
    "Population": "data.clients",
    "Recorder": "runs.writer",
    "Result": "server.result",
    "RoundEvent": "server.callbacks",
    "Run": "runs.reader",
    "Server": "settings",
    "SteelyardError": "errors",
    "SteelyardWarning": "errors",
    "Task": "task",
    "Training": "settings",
    "Weighed": "types",
    "bayesian": "nn.variational",
    "combine": "functional",
    "examples": "data.examples",
    "load_model": "specs.loading",
    "resume": "specs.running",
    "run": "specs.running",
    "weigh": "functional",
}

# Packages of their own, such as `sy.objectives`.
_PACKAGES = {"attacks", "combining", "engines", "flower", "objectives", "observers", "sharing", "weighing"}

__all__ = [
    "Algorithm",
    "Client",
    "ClientError",
    "Combined",
    "Dataset",
    "Federation",
    "InputError",
    "Population",
    "Recorder",
    "Result",
    "RoundEvent",
    "Run",
    "Server",
    "SteelyardError",
    "SteelyardWarning",
    "Task",
    "Training",
    "Weighed",
    "bayesian",
    "combine",
    "examples",
    "load_model",
    "resume",
    "run",
    "weigh",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"steelyard.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'steelyard' has no attribute {name!r}")
    home = importlib.import_module(f"steelyard.{_HOMES[name]}")
    return getattr(home, "SimulatedFederation" if name == "Federation" else name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
