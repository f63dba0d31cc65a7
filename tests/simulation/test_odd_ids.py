"""Client ids with odd characters work in every part of a run, or are refused when it is built."""

from pathlib import Path

import pytest
import torch
from torch import nn

import steelyard as sy
from steelyard import components
from steelyard.engines import Serial
from steelyard.errors import InputError
from steelyard.sharing import Head

ODD = (
    "", "a\0b", "a", "b", "\0", "new\nline", "../up", "/root", "a/b", 'quote"', "'", "\x1b[31m", "日本", "💧",
    "x" * 5000, "rows/a", "\u202e", " ", ".", "%s",
)  # fmt: skip


def federation(
    ids: tuple[str, ...], rule: str = "majority", rounds: int = 4, head: bool = False
) -> sy.Federation:
    torch.manual_seed(0)
    data = {name: (torch.randn(8, 4), torch.arange(8) % 3) for name in ids}
    sharing = {"sharing": Head(adopt=False)} if head else {}
    algorithm = sy.Algorithm(weighing=components.build("weighing", {"name": rule}), **sharing)
    model = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
    return sy.Federation(data, model, algorithm, rounds=rounds, engine=Serial(), spill=head)


@pytest.mark.parametrize("rule", ["majority", "ivar-vb", "concord", "consensus"])
def test_odd_ids_are_recorded_unharmed(tmp_path: Path, rule: str) -> None:
    found = federation(ODD, rule).run(recorder=sy.Recorder(tmp_path / "run"))
    assert {str(row["client"]) for row in found.clients} == set(ODD)
    assert all(row["status"] == "used" for row in found.clients)


def test_private_layers_of_odd_ids_are_kept_apart(tmp_path: Path) -> None:
    found = federation(ODD, "samples", head=True).run(recorder=sy.Recorder(tmp_path / "run"))
    bodies = {found.model_of(name).state_dict()["0.weight"].numpy().tobytes() for name in ODD}
    assert len(bodies) == len(ODD)
    assert not (tmp_path / "up").exists()


def test_an_id_that_cannot_be_written_is_refused_when_the_run_is_built() -> None:
    with pytest.raises(InputError, match=r"client id .* is not valid Unicode; give the client another id"):
        federation(("a", "b\ud800"))
