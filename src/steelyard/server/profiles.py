"""Do the clients fit together? Checked from their profiles before the first round."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from steelyard.errors import InputError
from steelyard.sites import Profile
from steelyard.types import ClientId


def check_profiles(profiles: Mapping[ClientId, Profile]) -> None:
    """Refuse clients whose shared tensors differ in shape from those of the first."""
    for client, profile in profiles.items():
        first = next(iter(profiles.values()))
        if profile.shapes != first.shapes:
            raise InputError(
                f"client {client!r} has a head of {_in_words(profile.shapes)}, but client {first.client!r} "
                f"has one of {_in_words(first.shapes)}; all must agree."
            )


def class_counts(profiles: Iterable[Profile]) -> Tensor:
    """The training examples of each class at all clients together, [C]."""
    counts = [profile.class_counts for profile in profiles if profile.class_counts is not None]
    return torch.stack(counts).sum(dim=0).float()


def _in_words(shapes: Sequence[tuple[int, ...]]) -> str:
    if [len(shape) for shape in shapes] in ([2, 1], [2]):
        classes, embedding = shapes[0]
        return f"embedding {embedding} and {classes} classes" + (" without bias" if len(shapes) == 1 else "")
    return "shapes " + ", ".join("×".join(map(str, shape)) or "1" for shape in shapes)
