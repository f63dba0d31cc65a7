"""Which jobs go to which node of a cluster, and what is left of them when a node dies."""

import itertools
from collections import deque
from collections.abc import Mapping

from steelyard.engines.attempts import Attempt
from steelyard.engines.worker import Job, OnCommon, Train
from steelyard.types import ClientId

AT_ONCE = 0.75  # of a node's share of the waiting jobs goes to it in one batch, the rest when it is done

Key = tuple[type[Job], ClientId | int]
"""A client in a job, or the first row of a part of the common test set."""


def deal(workers: int | None, free: dict[str, int]) -> dict[str, int]:
    """How many workers each node gets, one after the other in turn, at most one for each free CPU."""
    turns = sorted((turn, place, id) for place, id in enumerate(free) for turn in range(free[id]))
    dealt: dict[str, int] = {}
    for _, _, id in turns[: None if workers is None else max(0, workers)]:
        dealt[id] = dealt.get(id, 0) + 1
    return dealt


def portion(waiting: "deque[Attempt]", workers: int, of: int, room: int) -> list[Attempt]:
    """Take jobs for a node with some of all workers, evenly from the queue: the largest clients come first.

    A node that has all workers gets all jobs. A job whose node has died goes alone, as it may be the reason.
    """
    if waiting[0].deaths:
        return [waiting.popleft()]
    count = len(waiting) if workers == of else max(workers, round(AT_ONCE * workers / of * len(waiting)))
    count = min(count, len(waiting))
    chosen = {place * len(waiting) // count for place in range(count)}
    taken: list[Attempt] = []
    kept: list[Attempt] = []
    rows = 0
    for place, attempt in enumerate(waiting):
        size = len(attempt.job.clients) if isinstance(attempt.job, Train) else 0
        fits = not taken or rows + size <= room
        if place in chosen and fits and not attempt.deaths:
            taken.append(attempt)
            rows += size
        else:
            kept.append(attempt)
    waiting.clear()
    waiting.extend(kept)
    return taken


def keys(job: Job) -> list[Key]:
    if isinstance(job, OnCommon):
        return [(OnCommon, job.rows.start)]
    return [(type(job), client) for client in job.clients]


def rest(job: Job, left: Mapping[Key, Attempt]) -> Job:
    """The part of a job that is not answered."""
    if isinstance(job, OnCommon):
        return job
    open = [key in left for key in keys(job)]
    clients, states = [*itertools.compress(job.clients, open)], [*itertools.compress(job.states, open)]
    if isinstance(job, Train):
        return Train(clients, [*itertools.compress(job.rows, open)], states)
    return job._replace(clients=clients, states=states)
