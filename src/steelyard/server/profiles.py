"""Do the clients fit together? Checked from their profiles before the first round."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from steelyard.errors import InputError, warn_caller
from steelyard.layout import Layout
from steelyard.sites import Profile, Sites
from steelyard.types import ClientId

MAX_BYTES = 1 << 50  # of a client's model


def check_profiles(profiles: Mapping[ClientId, Profile]) -> None:
    """Refuse clients whose shared tensors differ in shape from those of the first."""
    for client, profile in profiles.items():
        first = next(iter(profiles.values()))
        if profile.shapes != first.shapes:
            raise InputError(
                f"client {client!r} has a head of {_in_words(profile.shapes)}, but client {first.client!r} "
                f"has one of {_in_words(first.shapes)}; all must agree."
            )


def usable_profiles(
    sites: Sites, clients: Sequence[ClientId], layout: Layout, max_examples: int, is_head: bool
) -> dict[ClientId, Profile]:
    """What the server learns of some clients before the first round; `is_head`: only heads are shared."""
    check_ids(sites.clients)
    found = screen_profiles(sites.profiles(clients), max_examples)
    return fitting_profiles(found, [tuple(entry.shape) for entry in layout.entries], is_head)


def fitting_profiles(
    profiles: Mapping[ClientId, Profile], shapes: Sequence[tuple[int, ...]], is_head: bool
) -> dict[ClientId, Profile]:
    """The profiles of clients that can share what the server shares; the others are named in a warning.

    `is_head` says that this is a head. One client cannot stop a run by a wrong profile. If none fits, it is
    the model that is wrong.
    """
    fitting = {client: each for client, each in profiles.items() if [*each.shapes] == [*shapes]}
    for client in sorted(profiles.keys() - fitting.keys()):
        text = f"client {client!r} {(_heads if is_head else _tensors)(profiles[client].shapes, shapes)}"
        if not fitting:
            raise InputError(f"{text}; all must agree.")
        warn_caller(f"{text}: its updates will be rejected.")
    return fitting


def screen_profiles(profiles: Mapping[ClientId, Profile], max_examples: int) -> dict[ClientId, Profile]:
    """The profiles that can be used; a client without one is treated as one that could not give it."""
    usable = {client: each for client, each in profiles.items() if _is_usable(client, each, max_examples)}
    sizes = Counter(len(each.class_counts) for each in usable.values() if each.class_counts is not None)
    usual = max(sorted(sizes), key=sizes.__getitem__, default=None)
    return {
        client: each
        for client, each in usable.items()
        if each.class_counts is None or len(each.class_counts) == usual
    }


def _is_usable(client: ClientId, profile: Profile, max_examples: int) -> bool:
    if type(profile) is not Profile:
        return False
    try:
        counts = profile.class_counts
        return (
            profile.client == client
            and type(profile.num_examples) is int
            and 0 <= profile.num_examples <= max_examples
            and type(profile.model_bytes) is int
            and 0 <= profile.model_bytes < MAX_BYTES
            and (counts is None or _are_counts(counts, profile.num_examples))
        )
    except Exception:  # whatever a client sent cannot be read
        return False


def _are_counts(counts: Tensor, total: int) -> bool:
    plain = type(counts) is Tensor and counts.dtype == torch.int64 and counts.dim() == 1
    return plain and bool(((counts >= 0) & (counts <= total)).all()) and sum(counts.tolist()) == total


def check_ids(ids: Iterable[ClientId]) -> None:
    """Refuse ids that cannot be written to a file."""
    for id in ids:
        try:
            id.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"the client id {id!r} is not valid Unicode; give the client another id."
            ) from None


def class_counts(profiles: Iterable[Profile]) -> Tensor:
    """The training examples of each class at all clients together, [C]."""
    counts = [profile.class_counts for profile in profiles if profile.class_counts is not None]
    if not counts:
        raise InputError("the objective needs the clients' class counts, and no client gave usable ones.")
    return torch.stack(counts).sum(dim=0).float()


def _heads(found: Sequence[tuple[int, ...]], wanted: Sequence[tuple[int, ...]]) -> str:
    return f"has a head of {_in_words(found)}, but the server one of {_in_words(wanted)}"


def _tensors(found: Sequence[tuple[int, ...]], wanted: Sequence[tuple[int, ...]]) -> str:
    """How two lists of shapes differ."""
    if len(found) != len(wanted):
        return f"shares another number of tensors than the server: {len(found)}, not {len(wanted)}"
    place = next(place for place, each in enumerate(found) if each != wanted[place])
    shapes = f"number {place + 1} is {_shape(found[place])}, not {_shape(wanted[place])}"
    return f"shares tensors of other shapes than the server: {shapes}"


def _in_words(shapes: Sequence[tuple[int, ...]]) -> str:
    if [len(shape) for shape in shapes] in ([2, 1], [2]):
        classes, embedding = shapes[0]
        return f"embedding {embedding} and {classes} classes" + (" without bias" if len(shapes) == 1 else "")
    return "shapes " + ", ".join(map(_shape, shapes))


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "1"
