"""Two hosts on this machine: network namespaces that are joined by a cable, for tests of what crosses it."""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import pytest


class Hosts(NamedTuple):
    """The names of the namespaces, and the address of the server's."""

    server: str
    client: str
    address: str


def on(host: str, command: Sequence[object]) -> list[str]:
    """A command that runs on a host."""
    return ["ip", "netns", "exec", host, *map(str, command)]


def need_hosts() -> None:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need root and iproute2")
    if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") is None:
        pytest.skip("nginx is not installed")
    probe = f"sy{secrets.token_hex(2)}"
    if subprocess.run(["ip", "netns", "add", probe], capture_output=True).returncode:
        pytest.skip("this machine allows no network namespaces")
    subprocess.run(["ip", "netns", "del", probe], check=True)


@contextmanager
def hosts() -> Iterator[Hosts]:
    tag = secrets.token_hex(2)
    made = Hosts(f"sy{tag}s", f"sy{tag}c", "10.231.77.1")
    commands = [
        f"ip netns add {made.server}",
        f"ip netns add {made.client}",
        f"ip link add sy{tag}0 netns {made.server} type veth peer name sy{tag}1 netns {made.client}",
        f"ip -n {made.server} addr add {made.address}/30 dev sy{tag}0",
        f"ip -n {made.client} addr add 10.231.77.2/30 dev sy{tag}1",
        *(f"ip -n {host} link set lo up" for host in (made.server, made.client)),
        f"ip -n {made.server} link set sy{tag}0 up",
        f"ip -n {made.client} link set sy{tag}1 up",
    ]
    try:
        for command in commands:
            subprocess.run(command.split(), check=True, capture_output=True)
        yield made
    finally:
        for host in (made.server, made.client):
            subprocess.run(["ip", "netns", "del", host], capture_output=True)
