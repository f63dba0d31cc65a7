"""Every kind of batch, output, target and metric has the same bits on every engine."""

import re
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from any_tasks import KINDS, NAMES, federation, model, texts
from test_engines import assert_same, no_process_is_left_behind  # noqa: F401
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset, default_collate

import steelyard as sy
from steelyard.errors import InputError
from steelyard.metrics.own import OwnMetrics

OTHERS = sorted(set(KINDS) - {"plain"})


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_pool_has_the_bits_of_the_serial_engine(kind: str) -> None:
    wanted = federation(kind).run()
    assert_same(federation(kind, engine=sy.engines.Pool(2)).run(), wanted)
    last = wanted.history[-1]
    for name in OwnMetrics(KINDS[kind][2]).names:
        assert np.isfinite([last[name], last[f"client_{name}"]]).all()
        assert all(name in row for row in wanted.clients)


@pytest.mark.parametrize("kind", OTHERS)
def test_the_vectorized_engine_refuses_and_auto_takes_another(kind: str) -> None:
    with pytest.raises(InputError, match="vectorized"):
        federation(kind, engine="vectorized").run()
    found = federation(kind, engine="auto").run()
    assert_same(found, federation(kind).run())


def test_on_the_vectorized_engine_own_metrics_are_close() -> None:
    found = federation("plain", engine="vectorized").run().history[-1]
    wanted = federation("plain").run().history[-1]
    for name in ("auroc", "confidence", "client_auroc", "client_confidence"):
        assert found[name] == pytest.approx(wanted[name], abs=1e-5)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_metrics_over_clients_are_those_of_all_their_test_examples_together(kind: str) -> None:
    parts = [KINDS[kind][0](7 + place, 9) for place in range(len(NAMES))]
    if kind == "stream":
        parts = [part.data for part in parts]
    if isinstance(parts[0], dict):
        together: Any = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    else:
        together = tuple(torch.cat(each) for each in zip(*parts, strict=True))
    result = federation(kind, test=together).run()
    last = result.history[-1]
    for name in OwnMetrics(KINDS[kind][2]).names:
        assert last[f"client_{name}"] == pytest.approx(last[name], rel=1e-6)
    measure = {"labels": "nll", "plain": None, "stream": None}.get(kind)
    if measure is not None:
        assert last[f"client_{measure}"] == pytest.approx(last[measure])


@pytest.mark.parametrize("kind", ["labels", "numbers", "loss", "texts", "pixels", "dict"])
def test_training_makes_the_metrics_better(kind: str) -> None:
    first, *_, last = federation(kind, rounds=8).run().history
    better = {"numbers": "mse", "loss": "test_loss", "texts": "test_loss"}.get(kind)
    if better is None:
        assert last["accuracy"] > first["accuracy"]
    else:
        assert last[better] < first[better]


def test_clients_rows_have_the_measure_of_their_kind() -> None:
    for kind, measure in (("labels", "accuracy"), ("numbers", "mse"), ("loss", "test_loss")):
        result = federation(kind, rounds=1).run()
        values = [row[measure] for row in result.clients]
        assert result.history[0][f"client_{measure}"] == pytest.approx(np.mean(values))


def test_a_loss_of_tokens_does_not_depend_on_the_size_of_batches() -> None:
    data = texts(99, 50)
    items = TensorDataset(data["x"], data["labels"])

    def named(batch: Any) -> dict[str, Tensor]:
        x, labels = default_collate(batch)
        return {"x": x, "labels": labels}

    def scored(batch_size: int, form: Any) -> dict[str, float]:
        algorithm = sy.Algorithm(training=sy.Training(batch_size=batch_size, steps=0))
        clients = {name: sy.Client(name, data, form) for name in NAMES}
        found = sy.Federation(clients, model("texts"), algorithm, test=form, validation=form, rounds=1)
        return found.run().history[0]

    loaders = [DataLoader(items, size, collate_fn=named) for size in (1, 7)]
    outputs = model("texts")(data["x"])["logits"].detach()
    wanted = float(F.cross_entropy(outputs[:, :-1].mT, data["labels"][:, 1:]))
    for found in (scored(1, data), scored(4, data), scored(64, data), *(scored(8, each) for each in loaders)):
        for name in ("test_loss", "client_test_loss", "validation_loss"):
            assert found[name] == pytest.approx(wanted, rel=1e-5)


def test_what_the_vectorized_engine_says_is_one_sentence() -> None:
    with pytest.raises(InputError) as error:
        federation("dict", engine="vectorized").run()
    assert re.fullmatch(r"[^\n]+\.", str(error.value))
