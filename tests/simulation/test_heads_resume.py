"""Bodies in files: kept aside during a run, saved with it, and there again when it is resumed."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from bodies import KD, NAMES, bits, federation
from torch import nn

import steelyard as sy
from steelyard.client.evaluation import predict
from steelyard.errors import InputError
from steelyard.runs.folder import MODEL
from steelyard.runs.reader import Run, runs_in
from steelyard.types import Round

# Kept aside


def test_what_stays_can_be_kept_in_files(tmp_path: Path) -> None:
    plain = federation(KD).run()
    spilled = federation(KD, spill=True).run(recorder=sy.Recorder(tmp_path / "run"))
    assert spilled.history == plain.history
    for client in NAMES:
        assert bits(spilled.model_of(client)) == bits(plain.model_of(client))


def test_what_was_spilled_and_not_recorded_is_gone() -> None:
    result = federation(KD, spill=True).run()
    with pytest.raises(InputError, match=f"'{NAMES[0]}' was in temporary files; record the run"):
        result.model_of(NAMES[0])


# A run from a spec

SPEC: dict[str, Any] = {
    "rounds": 4,
    "clients_per_round": 2,
    "engine": "serial",
    "model": {"name": "mlp", "hidden": 8},
    "data": {"clients": 3},
    "training": {"steps": 3},
    "objective": "distillation",
}


class BreakOffError(Exception):
    """Something that ends a run in the middle."""


def break_off(round: Round) -> None:
    if round.number == 2:
        raise BreakOffError


@pytest.mark.parametrize("spill", [False, True])
def test_a_run_that_broke_off_ends_as_if_nothing_had_happened(spill: bool, tmp_path: Path) -> None:
    spec = {**SPEC, "sharing": {"name": "head", "adopt": False}, "spill": spill}
    wanted = sy.run(spec, out=tmp_path / "whole")
    with pytest.raises(BreakOffError):
        sy.run(spec, break_off, out=tmp_path / "broken")
    (broken,) = runs_in(tmp_path / "broken")
    assert len(broken.rounds) == 2
    found = sy.resume(broken.path)
    assert wanted.path is not None
    assert Run(broken.path).rounds == Run(wanted.path).rounds
    assert Run(broken.path).clients == Run(wanted.path).clients
    assert (broken.path / MODEL).read_bytes() == (wanted.path / MODEL).read_bytes()
    for client in ("client-0", "client-1", "client-2"):
        assert bits(found.model_of(client)) == bits(wanted.model_of(client))
        assert bits(sy.load_model(broken.path, client)) == bits(wanted.model_of(client))


def test_bodies_are_saved_with_a_run(tmp_path: Path) -> None:
    result = sy.run(SPEC, out=tmp_path, sharing="head")
    assert result.path is not None
    head = sy.load_model(result.path)
    assert isinstance(head, nn.Linear)
    assert (head.in_features, head.out_features) == (8, 10)
    assert bits(head) == bits(result.model)
    images = sy.examples(torch.rand(30, 1, 8, 8), torch.arange(30) % 10)
    found = [predict(sy.load_model(result.path, f"client-{number}"), images) for number in range(3)]
    for number in range(3):
        assert torch.equal(found[number], predict(result.model_of(f"client-{number}"), images))
    assert not torch.equal(found[0], found[1])
    with pytest.raises(InputError, match=r"unknown client 'client-7': did you mean 'client-"):
        sy.load_model(result.path, "client-7")


def test_a_run_whose_private_layers_are_gone_is_not_resumed_with_new_ones(tmp_path: Path) -> None:
    with pytest.raises(BreakOffError):
        sy.run({**SPEC, "sharing": {"name": "head", "adopt": False}}, break_off, out=tmp_path)
    (broken,) = runs_in(tmp_path)
    shutil.rmtree(broken.path / "private")
    with pytest.raises(InputError, match="no folder 'private' with the private layers of its clients"):
        sy.resume(broken.path)
