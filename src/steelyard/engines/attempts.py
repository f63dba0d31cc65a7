"""Jobs that may have to be tried again because their worker died."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steelyard.engines.base import Deadline
from steelyard.engines.worker import STAGES, Evaluate, Job, Train

ATTEMPTS = 3  # tries of a job whose worker dies


@dataclass(eq=False)
class Attempt:
    """A job, and how many workers have died while they had it."""

    job: Job
    deaths: int = 0

    def answered(self, answer: Any, waiting: "deque[Attempt]") -> Any:
        """The answer to pass on, or None."""
        return answer

    def retry_or_fail(self, waiting: "deque[Attempt]") -> Any:
        """After a worker died: queue the job again; after too many deaths, give it up."""
        self.deaths += 1
        if self.deaths < ATTEMPTS:
            waiting.appendleft(self)
            return None
        return self.give_up(waiting)

    def give_up(self, waiting: "deque[Attempt]") -> Any:
        """Queue the clients one by one, or return the failure of the only one."""
        singles = self.job.singles()
        if len(singles) > 1:
            waiting.extendleft(map(Attempt, singles))
            return None
        return self.failed("its worker")

    def failed(self, whose: str) -> Any:
        return self.job.failed(STAGES[type(self.job)], f"{whose} died {ATTEMPTS} times")

    def late(self, deadline: Deadline) -> Any:
        """The answer to a job that was not done by the deadline."""
        assert isinstance(self.job, Train | Evaluate)
        return [deadline.missed_by(client) for client in self.job.clients]


@dataclass(eq=False)
class JointAttempt(Attempt):
    """Clients that are trained together: the last bits of their updates depend on the group.

    So the group is tried again as it is. If its workers keep dying, its clients are tried one by one, only to
    find those that kill workers. These have failed, and the others are trained together.
    """

    may_search: bool = True

    def give_up(self, waiting: "deque[Attempt]") -> Any:
        assert isinstance(self.job, Train)
        singles = self.job.singles()
        if len(singles) == 1 or not self.may_search:
            return self.failed("its worker" if len(singles) == 1 else "the worker of its group")
        search = Search(len(singles), [])
        waiting.extendleft(Trial(single, search=search) for single in reversed(singles))
        return None


@dataclass(eq=False)
class Search:
    """Which clients of a group can be trained without killing their worker?"""

    left: int
    """Clients that have not been tried yet."""
    survivors: list[Train]

    def tried(self, job: Train, survived: bool, waiting: "deque[Attempt]") -> None:
        """Note one client; after the last one, queue the group of those that survived, in the old order."""
        self.left -= 1
        self.survivors += [job] if survived else []
        if not self.left and self.survivors:
            waiting.appendleft(JointAttempt(join(self.survivors), may_search=False))


@dataclass(eq=False, kw_only=True)
class Trial(Attempt):
    """One client of a group, trained alone to see whether it kills its worker. The update is not used."""

    search: Search

    def answered(self, answer: Any, waiting: "deque[Attempt]") -> Any:
        assert isinstance(self.job, Train)
        self.search.tried(self.job, True, waiting)

    def give_up(self, waiting: "deque[Attempt]") -> Any:
        assert isinstance(self.job, Train)
        self.search.tried(self.job, False, waiting)
        return self.failed("its worker")


def join(jobs: Sequence[Train]) -> Train:
    """One job for the clients of several, in the order that they had in their group."""
    return Train(
        [client for job in jobs for client in job.clients],
        [row for job in jobs for row in job.rows],
        [state for job in jobs for state in job.states],
    )
