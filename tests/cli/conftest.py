"""Tests of the command line run in an empty folder, offline."""

from pathlib import Path

import pytest

import steelyard as sy

MINE = """
import torch
from torch import nn


class Linear(nn.Module):
    def __init__(self, input_shape, num_classes):
        super().__init__()
        self.layer = nn.Linear(64, num_classes)

    def forward(self, inputs):
        return self.layer(inputs.flatten(1))


def empty_second(labels, clients):
    rows = list(range(len(labels)))
    return [torch.tensor(rows[1:]), torch.tensor([]), *[torch.tensor(rows[:1])] * (clients - 2)]


class Stubborn(Linear):
    def forward(self, inputs):
        if self.training:
            raise RuntimeError("this model does not like to train")
        return super().forward(inputs)


def three_classes():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder with a module of the user's own, no data sets, no network and a wide screen."""

    def offline(url: str, path: Path) -> None:
        raise OSError("there is no network in tests")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("STEELYARD_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("steelyard.data.fetching.download.download", offline)
    (tmp_path / "mine_for_cli.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = sy.run(out=tmp_path_factory.mktemp("runs"), rounds=2, **{"data.clients": 3, "training.steps": 2})
    assert result.path is not None
    return result.path
