"""Observers of a run: they take its rounds to where people already look.

An observer is a function that is called with every completed round. A `Tracker` is also told how the run
begins and ends. In a spec: `observers = ["tensorboard", {name = "csv", path = "results"}]`.
"""

from steelyard.observers.base import Tracker
from steelyard.observers.csv_files import CSV
from steelyard.observers.json_lines import JSONLines
from steelyard.observers.mlflow_runs import MLflow
from steelyard.observers.tensorboard_events import TensorBoard

__all__ = ["CSV", "JSONLines", "MLflow", "TensorBoard", "Tracker"]
