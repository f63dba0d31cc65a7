"""Covariate shifts: bytes in, bytes out, and every client sees its own version."""

from typing import Any

import pytest
import torch
from torch import Tensor

from steelyard.data import shifts
from steelyard.errors import InputError

IMAGES = torch.randint(0, 256, (6, 3, 12, 12), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def shift(name: str, images: Tensor, client: int, clients: int = 5, **settings: Any) -> Tensor:
    shifted: Tensor = getattr(shifts, name)(
        images, client, clients, torch.Generator().manual_seed(1), **settings
    )
    return shifted


@pytest.mark.parametrize("name", shifts.__all__)
def test_a_shift_is_pure_repeatable_and_differs_by_client(name: str) -> None:
    before = IMAGES.clone()
    versions = [shift(name, IMAGES, client) for client in range(5)]
    assert torch.equal(IMAGES, before)
    for client, version in enumerate(versions):
        assert version.dtype == torch.uint8
        assert version.shape == IMAGES.shape
        assert torch.equal(version, shift(name, IMAGES, client))
    assert len({version.numpy().tobytes() for version in versions}) == 5
    assert shift(name, IMAGES[:0], 0).shape == (0, 3, 12, 12)


@pytest.mark.parametrize(("name", "client"), [("rotation", 2), ("noise", 0), ("contrast", 2)])
def test_one_client_keeps_its_images_as_they_are(name: str, client: int) -> None:
    assert torch.equal(shift(name, IMAGES, client), IMAGES)


@pytest.mark.parametrize("name", shifts.__all__)
def test_a_setting_of_zero_changes_nothing(name: str) -> None:
    off: dict[str, Any] = {{"rotation": "degrees", "noise": "std", "contrast": "strength"}[name]: 0.0}
    assert torch.equal(shift(name, IMAGES, 4, **off), IMAGES)


def test_rotation_by_a_right_angle_is_exact() -> None:
    assert torch.equal(shift("rotation", IMAGES, 4, degrees=90.0), torch.rot90(IMAGES, 1, (2, 3)))
    assert torch.equal(shift("rotation", IMAGES, 0, degrees=90.0), torch.rot90(IMAGES, -1, (2, 3)))


def test_rotation_keeps_proportions_of_oblong_images() -> None:
    image = torch.zeros(1, 1, 20, 40, dtype=torch.uint8)
    image[..., 9:11, 12:28] = 255  # a flat bar, 16 long and 2 thick
    turned = shift("rotation", image, 1, clients=2, degrees=90.0)
    expected = torch.zeros_like(image)
    expected[..., 2:18, 19:21] = 255
    assert torch.equal(turned, expected)


def test_rotation_does_not_depend_on_how_many_images_there_are() -> None:
    many = IMAGES[:1, :1].repeat(1500, 1, 1, 1)
    turned = shift("rotation", many, 0)
    assert turned.shape == many.shape
    assert torch.equal(turned[1400], shift("rotation", many[:1], 0)[0])


def test_noise_grows_from_the_first_client_to_the_last() -> None:
    grey = torch.full((50, 1, 20, 20), 128, dtype=torch.uint8)
    spread = [float(shift("noise", grey, client, std=0.1).float().std()) / 255 for client in range(5)]
    assert spread == pytest.approx([0.0, 0.025, 0.05, 0.075, 0.1], abs=0.002)
    assert abs(float(shift("noise", grey, 4, std=0.1).float().mean()) - 128) < 1


def test_noise_is_clipped_not_wrapped() -> None:
    white = torch.full((50, 1, 20, 20), 255, dtype=torch.uint8)
    assert float(shift("noise", white, 4, std=0.1).float().mean()) > 240


def test_contrast_fades_to_black_for_the_first_and_to_white_for_the_last() -> None:
    ramp = torch.tensor([0, 100, 255], dtype=torch.uint8).view(1, 1, 1, 3)
    assert shift("contrast", ramp, 0, strength=0.6).flatten().tolist() == [0, 40, 102]
    assert shift("contrast", ramp, 4, strength=0.6).flatten().tolist() == [153, 193, 255]
    assert shift("contrast", ramp, 3, strength=0.4).flatten().tolist() == [51, 131, 255]


def test_a_lone_client_stands_in_the_middle() -> None:
    assert torch.equal(shift("rotation", IMAGES, 0, clients=1), IMAGES)
    assert torch.equal(shift("contrast", IMAGES, 0, clients=1), IMAGES)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("rotation", {"degrees": 181.0}, "degrees must be between 0 and 180, not 181.0"),
        ("noise", {"std": -0.1}, "std must be between 0 and 1, not -0.1"),
        ("contrast", {"strength": float("nan")}, "strength must be between 0 and 0.95, not nan"),
    ],
)
def test_impossible_settings_are_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        shift(name, IMAGES, 0, **settings)


@pytest.mark.parametrize("name", shifts.__all__)
@pytest.mark.parametrize("data", [torch.zeros(4, 7), torch.zeros(4, 1, 8, 8), IMAGES[0]])
def test_only_images_can_be_shifted(name: str, data: Tensor) -> None:
    with pytest.raises(InputError, match="needs images as bytes"):
        shift(name, data, 0)
