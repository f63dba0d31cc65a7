"""The programs of an experiment are not a package, but modules in its folder."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture(autouse=True)
def neighbours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes the programs of the test module's FOLDER importable during a test."""
    folder: Path = request.module.FOLDER
    monkeypatch.syspath_prepend(folder)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    for program in folder.glob("*.py"):
        sys.modules.pop(program.stem, None)
