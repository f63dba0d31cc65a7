"""Joining a Ray cluster, or starting Ray here, without leaving a trace; and the CPUs that nodes have free."""

import importlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from steelyard.errors import InputError

FREE_SECONDS = 3.0  # to wait for CPUs that another run has just given back


@contextmanager
def connected(address: str | None, cpus: int) -> Iterator[Any]:
    """Ray, imported when it is needed, and left as it was found."""
    try:
        ray: Any = importlib.import_module("ray")
    except ModuleNotFoundError:
        raise InputError("the ray engine needs Ray: install steelyard[ray].") from None
    if ray.is_initialized():
        yield ray
        return
    if address is not None and address.startswith("ray://"):
        raise InputError("the ray engine runs on a machine of the cluster, not by Ray Client (ray://).")
    local = {"num_cpus": cpus, "include_dashboard": False} if address is None else {}
    with undisturbed(ray):
        try:
            check_reachable(address or "local")
            ray.init(address or "local", log_to_driver=False, logging_level="ERROR", **local)
        except (OSError, RuntimeError, ValueError) as error:
            what = f"join a Ray cluster at {address!r}" if address else "start Ray"
            raise InputError(f"cannot {what}: {last_line(error)}") from error
        try:
            yield ray
        finally:
            ray.shutdown()


def check_reachable(address: str) -> None:
    """Fail at once if host:port cannot be reached; Ray itself tries for minutes."""
    host, _, port = address.rpartition(":")
    if port.isdigit() and "://" not in host:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


@contextmanager
def undisturbed(ray: Any) -> Iterator[None]:
    """Keep Ray from printing, and undo what it does to the environment and to the handling of SIGTERM."""
    inside, before, handler = ray._private.worker, dict(os.environ), signal.getsignal(signal.SIGTERM)
    listen = getattr(inside, "listen_error_messages", None)  # prints every death, and no setting stops it
    inside.listen_error_messages = lambda *_: None
    try:
        yield
    finally:
        inside.listen_error_messages = listen
        for name in os.environ.keys() | before.keys():
            if name.startswith("RAY_") or name == "PYTHONBREAKPOINT":
                os.environ.pop(name, None)
                if name in before:
                    os.environ[name] = before[name]
        with suppress(ValueError):  # outside the main thread, where Ray does not touch it either
            signal.signal(signal.SIGTERM, handler)


def free_cpus(ray: Any, patience: float = 0.0) -> dict[str, int]:
    """The free CPUs of each living node, by its id; waits up to `patience` seconds for them all."""
    end = time.monotonic() + patience
    while True:
        alive = {each["NodeID"]: each["Resources"] for each in ray.nodes() if each["Alive"]}
        now = ray._private.state.available_resources_per_node()
        all_cpus = {node: int(resources.get("CPU", 0)) for node, resources in alive.items()}
        free = {node: min(cpus, int(now.get(node, {}).get("CPU", 0))) for node, cpus in all_cpus.items()}
        if (any(all_cpus.values()) and free == all_cpus) or time.monotonic() >= end:
            return {node: cpus for node, cpus in free.items() if cpus}
        time.sleep(0.05)


def last_line(error: Exception) -> str:
    """What an error comes to, without the traceback from another machine."""
    return (str(error).strip() or type(error).__name__).splitlines()[-1]
