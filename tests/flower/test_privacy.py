"""What leaves a site, read from the bytes that it sends: what the sharing rule names, and sums."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from loop_channel import LoopChannel, remote, sites_of

from steelyard.flower.messages import SCORE
from steelyard.specs.schema import Spec, load_spec
from steelyard.threads import one_thread

ALLOWED = {
    *("protocol", "client", "spec", "run", "nonce", "round"),  # which question is answered
    *("examples", "metrics", "classes", "labels", "shapes", "model_bytes", "stage", "reason"),
}
WINDOW = 8  # values in a row that would give private tensors away


def run(spec: Spec, folder: Path) -> LoopChannel:
    channel = LoopChannel(sites_of(spec, folder / "homes"))
    with one_thread():
        server, sites = remote(spec, channel, folder / "server")
        sites.rewind(0)
        server.run()
    return channel


@pytest.mark.parametrize("preset", ["fedavg", "chfl", "robust-barycenter"])
def test_only_what_is_named_leaves(preset: str, tmp_path: Path) -> None:
    changed = {"data.clients": 3, "rounds": 2, "engine": "serial", "data.holdout": 0.0}
    channel = run(load_spec(preset, changed), tmp_path)
    for header in channel.headers:
        assert {*header} <= ALLOWED
        assert {*header.get("metrics", {})} <= {"loss", "steps"}
    for client, messages in channel.sent.items():
        site = channel.sites[client].site
        shared = site.learner.sharing.layout(site.working.model).size
        for contents in messages:
            arrays = [_body(each) for each in contents.values() if each.startswith(b"Array ")]
            for array in arrays:
                assert np.prod(array["shape"]) <= max(shared, 5 + 45 + 100 * 100)
        sent = b"".join(b"".join(contents.values()) for contents in messages)
        names = [json.dumps(f"{SCORE}{name}")[1:-1].encode() for name in ("predictions", "labels")]
        assert not any(name in sent for name in names)
        _assert_absent(sent, site.client.train.batch(torch.arange(20))[0])
        if site.client.test is not None:
            _assert_absent(sent, site.client.test.batch(torch.arange(20))[0])
        labels = site.client.train.labels
        for kind in (np.int64, np.int32, np.uint8, np.float32):
            assert labels[:40].numpy().astype(kind).tobytes() not in sent


def test_bodies_stay(tmp_path: Path) -> None:
    channel = run(load_spec("chfl", {"data.clients": 3, "rounds": 2, "engine": "serial"}), tmp_path)
    for client, messages in channel.sent.items():
        answering = channel.sites[client]
        state = answering.states
        state.open("ab" * 16, 2, 0, True)
        assert state.state
        sent = b"".join(b"".join(contents.values()) for contents in messages)
        for tensor in state.state.values():
            _assert_absent(sent, tensor.float())


def _body(content: bytes) -> dict[str, list[int]]:
    found: dict[str, list[int]] = json.loads(content.partition(b"\0")[2])
    return found


def _assert_absent(sent: bytes, private: torch.Tensor) -> None:
    """No few values of a private tensor that vary occur among the bytes."""
    values = private.detach().float().flatten().numpy()
    for start in range(0, max(1, len(values) - WINDOW), max(1, len(values) // 50)):
        piece = values[start : start + WINDOW]
        if len(piece) == WINDOW and len(np.unique(piece)) > WINDOW // 2:
            assert piece.tobytes() not in sent
            assert piece.astype(np.float64).tobytes() not in sent
