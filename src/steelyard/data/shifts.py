"""Covariate shifts: images of the same class look different from client to client."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from steelyard.errors import InputError

__all__ = ["contrast", "noise", "rotation"]


def rotation(
    images: Tensor, client: int, clients: int, generator: torch.Generator, *, degrees: float = 45.0
) -> Tensor:
    """Rotate each client's images by its own angle; angles are spaced evenly from -degrees to +degrees.

    Positive angles are counter-clockwise. Pixels from outside the image are black.
    """
    _check_images(images)
    _check_range("degrees", degrees, 0, 180)
    angle = math.radians(degrees * (2 * _place(client, clients) - 1))
    # Chunks limit the memory of the float copy.
    return torch.cat([_rotate(chunk, angle) for chunk in torch.split(images, 1024)])


def noise(
    images: Tensor, client: int, clients: int, generator: torch.Generator, *, std: float = 0.3
) -> Tensor:
    """Gaussian pixel noise, with a standard deviation from 0 (first client) to 255 · `std` (last client)."""
    _check_images(images)
    _check_range("std", std, 0, 1)
    scale = 255 * std * _place(client, clients)
    return _to_bytes(torch.randn(images.shape, generator=generator).mul_(scale).add_(images))


def contrast(
    images: Tensor, client: int, clients: int, generator: torch.Generator, *, strength: float = 0.7
) -> Tensor:
    """Blend images with black for the first client, with white for the last, by up to `strength`.

    Clients in between have less of it, and the one in the middle none. No pixel is clipped.
    """
    _check_images(images)
    _check_range("strength", strength, 0, 0.95)
    side = 2 * _place(client, clients) - 1
    colour = 255.0 if side > 0 else 0.0
    return _to_bytes(torch.lerp(images.float(), torch.tensor(colour), strength * abs(side)))


def _place(client: int, clients: int) -> float:
    """The position of a client from 0 (first) to 1 (last); 0.5 for a single client."""
    return client / (clients - 1) if clients > 1 else 0.5


def _rotate(images: Tensor, angle: float) -> Tensor:
    height, width = images.shape[-2:]
    cos, sin = math.cos(angle), math.sin(angle)
    # The grid runs from -1 to 1 on both axes, so the matrix must include the aspect ratio.
    matrix = torch.tensor([[cos, -sin * height / width, 0.0], [sin * width / height, cos, 0.0]])
    grid = F.affine_grid(matrix[None], [1, 1, height, width], align_corners=False)
    grid = grid.expand(len(images), -1, -1, -1)
    return _to_bytes(F.grid_sample(images.float(), grid, mode="bilinear", align_corners=False))


def _to_bytes(pixels: Tensor) -> Tensor:
    return pixels.round().clamp(0, 255).to(torch.uint8)


def _check_images(images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.dim() != 4:
        raise InputError(
            f"a covariate shift needs images as bytes [N, C, H, W], not {images.dtype} of shape "
            f"{tuple(images.shape)}: take a data set of images, or no shift."
        )


def _check_range(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise InputError(f"{name} must be between {low} and {high}, not {value}.")
