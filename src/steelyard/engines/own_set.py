"""A data set of the server's own, scored in its process."""

from dataclasses import replace

from torch import nn

from steelyard.client.learner import Learner
from steelyard.client.own_code import has_own_data
from steelyard.client.private_state import MemoryStates
from steelyard.data.examples import AnyExamples
from steelyard.engines.serial_sites import SerialSites
from steelyard.engines.workload import Workload
from steelyard.metrics.scores import Scores
from steelyard.sites import ServerTestSet
from steelyard.threads import one_thread
from steelyard.types import Message


def server_set(model: nn.Module | None, learner: Learner, data: AnyExamples | None) -> ServerTestSet | None:
    """The data as a test set of the server; None without data, and where clients have models of their own."""
    if has_own_data({}, data):
        learner = replace(learner, own_code=True)
    found = SerialSites(Workload(model, learner, {}, data), MemoryStates()).test
    return None if found is None else OneThread(found)


class OneThread:
    """A test set that is scored on one thread, so that its scores have the same bits wherever that is."""

    def __init__(self, data: ServerTestSet) -> None:
        self.data = data

    def scores(self, model: Message, temperature: float = 1.0) -> Scores:
        with one_thread():
            return self.data.scores(model, temperature)
