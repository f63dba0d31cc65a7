"""Arrays of bytes reach the model as they are, unless a scale is given."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import steelyard as sy
from steelyard.data.clients import Client
from steelyard.data.examples import Examples, examples
from steelyard.errors import InputError, SteelyardWarning

PIXELS = np.random.default_rng(0).integers(0, 256, (60, 3, 2, 2), dtype=np.uint8)
LABELS = np.arange(60) % 3


def test_bytes_reach_the_model_unscaled_and_that_is_said_once() -> None:
    with pytest.warns(SteelyardWarning, match="bytes and reach the model as floats from 0 to 255") as said:
        data = examples(PIXELS, LABELS)
    assert len(said) == 1
    assert said[0].filename == __file__, "the warning points at the caller"
    for dtype in (torch.float32, torch.float64):
        inputs, _ = data.to(dtype).batch(torch.arange(60))
        assert isinstance(inputs, Tensor)
        assert inputs.dtype == dtype
        assert torch.equal(inputs, torch.from_numpy(PIXELS).to(dtype))
        assert torch.equal(data.to(dtype).span(0, 60)[0], inputs)  # type: ignore[arg-type]


def test_bytes_of_a_structure_reach_the_model_unscaled_too() -> None:
    with pytest.warns(SteelyardWarning, match="bytes and reach the model as floats from 0 to 255"):
        data = examples({"image": PIXELS, "age": LABELS, "y": LABELS})
    inputs, _ = data.span(0, 60)
    assert isinstance(inputs, dict)
    assert torch.equal(inputs["image"], torch.from_numpy(PIXELS).float())
    assert inputs["age"].dtype == torch.int64


@pytest.mark.parametrize(
    ("scale", "mean", "std"),
    [
        ({"mean": 0.5, "std": 0.25}, [0.5] * 3, [0.25] * 3),
        ({"mean": (0.1, 0.2, 0.3), "std": [1, 2, 3]}, [0.1, 0.2, 0.3], [1, 2, 3]),
        ({"mean": np.array([0.1, 0.2, 0.3]), "std": torch.tensor(0.5)}, [0.1, 0.2, 0.3], [0.5] * 3),
        ({"mean": 0}, [0.0] * 3, [1.0] * 3),
        ({"std": 1}, [0.0] * 3, [1.0] * 3),
    ],
)
def test_a_mean_and_std_scale_bytes_as_torchvision_does(
    scale: Any, mean: list[float], std: list[float]
) -> None:
    inputs, _ = examples(PIXELS, LABELS, **scale).batch(torch.arange(60))
    wide = PIXELS.astype(np.float64) / 255
    expected = (wide - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    assert isinstance(inputs, Tensor)
    np.testing.assert_allclose(inputs.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("given", "scale", "message"),
    [
        ((PIXELS, LABELS), {"mean": (0.1, 0.2)}, "rome: mean has 2 values, but the inputs 3 channels"),
        ((PIXELS, LABELS), {"std": 0}, "rome: std must be greater than 0"),
        ((PIXELS.astype(float), LABELS), {"mean": 0.5}, "rome: mean and std scale one array of bytes"),
        ((PIXELS, PIXELS, LABELS), {"mean": 0.5}, "rome: mean and std scale one array of bytes"),
        ([(torch.ones(1), 0)] * 3, {"mean": 0.5}, "rome: mean and std are for arrays of bytes"),
    ],
)
def test_a_scale_that_cannot_be_used_is_refused(given: Any, scale: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        examples(given, name="rome", **scale)


def test_data_with_a_scale_of_their_own_keep_it() -> None:
    table = Examples(torch.from_numpy(PIXELS), torch.from_numpy(LABELS), torch.arange(60))
    assert float(table.batch(torch.arange(60))[0].max()) <= 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Client("a", table).train is table


def test_the_model_of_a_run_predicts_from_the_users_bytes_what_was_scored() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 3))
    with pytest.warns(SteelyardWarning, match="bytes"):
        federation = sy.Federation(
            {"a": (PIXELS[:30], LABELS[:30]), "b": (PIXELS[30:], LABELS[30:])},
            model,
            test=(PIXELS, LABELS),
            rounds=2,
        )
    result = federation.run()
    outputs = result.model.eval()(torch.from_numpy(PIXELS).float()).detach()
    assert result.history[-1]["nll"] == pytest.approx(
        float(nn.functional.cross_entropy(outputs, torch.from_numpy(LABELS))), rel=1e-5
    )


ITEMS = list(zip(PIXELS, LABELS.tolist(), strict=True))


@pytest.mark.parametrize(
    "given",
    [
        ITEMS,
        [{"image": torch.from_numpy(pixels), "label": label} for pixels, label in ITEMS],
        DataLoader(ITEMS, batch_size=20),
        lambda: DataLoader(ITEMS, batch_size=20),
    ],
    ids=["items", "dicts", "loader", "function"],
)
def test_bytes_of_items_reach_a_model_as_floats_too_and_that_is_said(given: Any) -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(12, 3)

        def forward(self, image: Tensor) -> Tensor:
            assert image.dtype == self.layer.weight.dtype
            return self.layer(image.flatten(1))  # type: ignore[no-any-return]

    for model in (Flat(), Flat().double()):
        with pytest.warns(
            SteelyardWarning, match="bytes .* divide them by 255 in the data set or the"
        ) as said:
            federation = sy.Federation({"a": given}, model, rounds=1, engine="serial")
        assert len(said) == 1
        assert said[0].filename == __file__
        assert federation.run().history[0]["used"] == 1


def test_bytes_without_targets_have_no_scale() -> None:
    with pytest.raises(InputError, match="mean and std scale one array of bytes that has targets"):
        examples(PIXELS, mean=0.5)
