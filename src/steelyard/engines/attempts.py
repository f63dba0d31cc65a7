"""Jobs that may have to be tried again."""

from collections import deque
from dataclasses import dataclass
from typing import Any

from steelyard.engines.base import Deadline
from steelyard.engines.worker import STAGES, Job, PredictCommon

ATTEMPTS = 3  # tries of a job whose worker dies


@dataclass
class Attempt:
    """A job, and how many workers have died while they had it."""

    job: Job
    deaths: int = 0

    def retry_or_fail(self, waiting: "deque[Attempt]") -> Any:
        """After a worker died: queue the job again; after too many deaths, split it or return a failure."""
        self.deaths += 1
        if self.deaths < ATTEMPTS:
            waiting.appendleft(self)
            return None
        singles = self.job.singles()
        if len(singles) > 1:
            waiting.extendleft(map(Attempt, singles))
            return None
        return self.job.failed(STAGES[type(self.job)], f"its worker died {ATTEMPTS} times")

    def late(self, deadline: Deadline) -> Any:
        """The answer to a job that was not done by the deadline."""
        assert not isinstance(self.job, PredictCommon)
        return [deadline.missed_by(client) for client in self.job.clients]
