"""BlazeFL: its trainer with a pool of processes and shared memory, or with `threads` its pool of threads.

BlazeFL leaves the server and the work of a client to its user; they are written here as its examples do.
"""

import multiprocessing
import os
import resource
import sys
import threading
import time
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch._dynamo  # torch.optim imports it when it is first used: workers inherit it, or take 1.6 s for it
from blazefl.core import (
    IPCMode,
    ProcessPoolClientTrainer,
    SHMHandle,
    ThreadPoolClientTrainer,
    deserialize_model,
    serialize_model,
)
from torch import Tensor

from contenders.setting import Setting, argument, evaluate, read, say_round, say_versions, table, train

WORKERS = os.cpu_count() or 1


@dataclass
class Down:
    """The global model."""

    model: Tensor


@dataclass
class Up:
    """A client's model."""

    model: Tensor | SHMHandle
    examples: int


class Work(NamedTuple):
    """A client in a round."""

    folder: str
    number: int
    client: int


def trained(work: Work, start: Tensor) -> Up:
    """The model of a client, trained on one core from the global one."""
    torch.set_num_threads(1)
    setting = read(work.folder)
    model = setting.network()
    deserialize_model(model, start)
    data = table(work.folder, work.client)
    train(model, data, setting.training, setting.order(work.number, work.client))
    return Up(serialize_model(model), len(data[1]))


class Processes(ProcessPoolClientTrainer[Up, Down, Work]):
    """A new pool of processes in each round, as BlazeFL makes it; models come back in shared memory."""

    def __init__(self, folder: str, size: int) -> None:
        self.folder, self.size, self.number = folder, size, 0
        self.num_parallels, self.device, self.ipc_mode = WORKERS, "cpu", IPCMode.SHARED_MEMORY
        self.stop_event = multiprocessing.Manager().Event()
        self.cache: list[Up] = []

    def get_client_config(self, cid: int) -> Work:
        return Work(self.folder, self.number, cid)

    def prepare_uplink_package_buffer(self) -> Up:
        return Up(torch.empty(self.size), 0)

    @staticmethod
    def worker(
        config: Work, payload: Down, device: str, stop_event: threading.Event, *, shm_buffer: Up
    ) -> Up:
        up = trained(config, payload.model)
        shm_buffer.model.copy_(up.model)
        return Up(SHMHandle(), up.examples)


class Threads(ThreadPoolClientTrainer[Up, Down]):
    """A pool of threads. Python's global lock holds them back outside torch's operators."""

    def __init__(self, folder: str, size: int) -> None:
        self.folder, self.number = folder, 0
        self.num_parallels, self.device, self.stop_event = WORKERS, "cpu", threading.Event()
        self.cache: list[Up] = []

    def worker(self, cid: int, device: str, payload: Down, stop_event: threading.Event) -> Up:
        return trained(Work(self.folder, self.number, cid), payload.model)


def merge(ups: list[Up]) -> Tensor:
    """The mean of the clients' models, weighted by their examples."""
    total = sum(up.examples for up in ups)
    merged = torch.zeros_like(ups[0].model)
    for up in ups:
        merged.add_(up.model, alpha=up.examples / total)
    return merged


def rounds(setting: Setting, trainer: Processes | Threads) -> None:
    model, test = setting.model(), setting.test()
    for number, cohort in enumerate(setting.cohorts, 1):
        start = time.perf_counter()
        trainer.number = number
        trainer.local_process(Down(serialize_model(model)), cohort)
        ups, trainer.cache = trainer.cache, []
        deserialize_model(model, merge(ups))
        accuracy = evaluate(model, test) if setting.evaluates else None
        say_round(number, time.perf_counter() - start, accuracy)


def main() -> None:
    say_versions("blazefl")
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))  # one for each model in shared memory
    folder = argument()
    setting = read(folder)
    for client in setting.invited:  # forked workers inherit the data
        table(folder, client)
    kind = Threads if sys.argv[2:] == ["threads"] else Processes
    rounds(setting, kind(folder, serialize_model(setting.network()).numel()))


if __name__ == "__main__":
    main()
