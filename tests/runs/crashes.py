"""Folders as a crash leaves them, and damage to their files."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import steelyard as sy
from steelyard.runs import writer
from steelyard.runs.folder import BEST, MODEL
from steelyard.runs.reader import Run, runs_in
from steelyard.server.observing import Observer
from steelyard.types import Round

SPEC: dict[str, Any] = {"rounds": 6, "data": {"clients": 3}, "training": {"steps": 2}, "engine": "serial"}
HEADS: dict[str, Any] = {
    **SPEC,
    "model": {"name": "mlp", "hidden": 8},
    "sharing": {"name": "head", "adopt": False},
    "objective": "distillation",
}


def copy_at(round: int, out: Path, copy: Path) -> Observer:
    """An observer that copies the folder of the only run in `out`, as a crash after this round leaves it."""

    def observe(done: Round) -> None:
        if done.number == round:
            (run,) = runs_in(out)
            shutil.copytree(run.path, copy)

    return observe


def crash(spec: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A finished run, and a copy of its folder as a crash after round 4 of 6 leaves it.

    A state was saved after every round; the copy has those of rounds 3 and 4.
    """
    with monkeypatch.context() as patch:
        patch.setattr(writer, "STATE_SECONDS", 0.0)
        whole = sy.run(spec, copy_at(4, folder / "whole", folder / "crashed"), out=folder / "whole")
    assert whole.path is not None
    return folder / "crashed", whole.path


def assert_same(found: Path, wanted: Path) -> None:
    assert Run(found).rounds == Run(wanted).rounds
    assert Run(found).clients == Run(wanted).clients
    assert (found / MODEL).read_bytes() == (wanted / MODEL).read_bytes()
    assert (found / BEST).is_file() == (wanted / BEST).is_file()
    if (wanted / BEST).is_file():
        assert (found / BEST).read_bytes() == (wanted / BEST).read_bytes()
        assert Run(found).meta["best_round"] == Run(wanted).meta["best_round"]


def flip(path: Path, place: int) -> None:
    """Flip one bit of a file."""
    content = bytearray(path.read_bytes())
    content[place % len(content)] ^= 1 << place % 8
    path.write_bytes(content)
