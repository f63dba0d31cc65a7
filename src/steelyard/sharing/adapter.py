"""Share LoRA adapters: of each adapted layer its two factors, and whatever else is trained.

A layer with a frozen weight W computes with W + s B A, where A [r, n] and B [m, r] are trained and s is the
scaling, α/r. What travels is A and s B, padded with zeros to the common rank R: these have the product s B A,
whatever rank and scaling a client has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from steelyard.errors import COUNT, InputError, check_settings
from steelyard.layout import Entry, Layout, Pair, layout_of
from steelyard.sharing.base import Sharing, Tensors
from steelyard.sharing.trainable import frozen_names
from steelyard.types import EMPTY, Message, State

FACTORS = {"lora_A": "lora_B", "lora_embedding_A": "lora_embedding_B"}
"""Names of the first factor, as in PEFT and loralib, and of the second."""


@dataclass(frozen=True)
class Lora:
    """One adapted layer of a model."""

    pair: Pair
    """The places of the padded factors."""
    rank: int
    """r, the rank of the model's own factors."""
    scaling: float
    weight: str | None
    """The name of the frozen weight, if what the model's rank cannot hold can be added to it."""
    transposed: bool
    """Whether the frozen weight is [n, m], not [m, n]."""

    def held(self, factor: Tensor, entry: Entry) -> Tensor:
        """The part [r] of a padded factor [R] that the model's own factor holds."""
        return factor.narrow(int(entry == self.pair.b), 0, self.rank)

    def rest(self, vector: Tensor) -> Tensor:
        """The product [m, n] of the rows and columns that the model's own factors do not hold."""
        a, b = self.pair.split(vector)
        product = b[:, self.rank :] @ a[self.rank :]
        return product.T if self.transposed else product


@dataclass(frozen=True, eq=False)
class AdapterLayout(Layout):
    """The layout of the padded factors and of the other trained parameters."""

    layers: tuple[Lora, ...] = ()

    @property
    def pairs(self) -> tuple[Pair, ...]:
        return tuple(layer.pair for layer in self.layers)

    @cached_property
    def by_name(self) -> Mapping[str, Lora]:
        """The layer of each factor."""
        return {entry.name: each for each in self.layers for entry in (each.pair.a, each.pair.b)}


@dataclass(frozen=True)
class Adapter(Sharing):
    """Share LoRA adapters (PEFT): the two factors of each adapted layer, and what else is trained.

    Frozen weights come with the model, must be the same at all clients, and are never sent. `rank` is the
    rank of what travels (default: the model's own, which then all clients must have). Clients may bring
    models of any smaller rank (`Client(model=...)`). What the rank of a model cannot hold is added to its
    frozen weights, so that all clients train from the same function. With a `rank` above that of all models,
    `low-rank` merges with a smaller error or, if it is at least that of the weights, with none.
    """

    rank: int | None = None

    def __post_init__(self) -> None:
        check_settings("sharing 'adapter': ", self, rank=COUNT)

    @property
    def shares_a_part(self) -> bool:
        return True

    @property
    def allows_own_models(self) -> bool:
        return True

    @property
    def has_factors(self) -> bool:
        return True

    def why_not_beside(self, own: nn.Module, common: nn.Module | None) -> str | None:
        if common is None:
            return "the federation has none; give it the model with the largest rank"
        named, shared = dict(own.named_parameters()), dict(common.named_parameters())
        for name in (name for name, parameter in named.items() if not parameter.requires_grad):
            if name not in shared or not torch.equal(named[name], shared[name]):
                return (
                    f"its frozen parameter {name!r} is not that of the federation's model; copy it from there"
                )
        return _why_not_merged(self.layout(own), self.layout(common))

    def layout(self, model: nn.Module) -> AdapterLayout:
        plain = layout_of(model, frozen_names(model))
        named = dict(model.named_parameters())
        found = {
            entry.name: second for entry in plain.parameters if (second := _partner(entry.name)) in named
        }
        ranks = {
            name: (self._rank(named[first], named[second], first), place)
            for first, second in found.items()
            if named[second].requires_grad
            for place, name in enumerate((first, second))
        }
        if not ranks:
            raise InputError(
                f"the model {type(model).__name__} has no adapter: in no layer are the parameters `lora_A` "
                "and `lora_B` both trained; take the sharing `trainable`."
            )
        entries = _padded(plain.entries, ranks)
        places = {entry.name: entry for entry in entries}
        pairs = (Pair(places[first], places[found[first]]) for first in found if first in ranks)
        layers = tuple(_layer(model, named, pair) for pair in pairs)
        reset = {each.weight: named[each.weight].detach().clone() for each in layers if each.weight}
        count = len(plain.parameters)
        return AdapterLayout(entries[:count], entries[count:], {**plain.constants, **reset}, layers=layers)

    def read(self, tensors: Tensors, layout: Layout) -> Message:
        return self.read_trained(tensors, layout, None)

    def read_trained(self, tensors: Tensors, layout: Layout, came_down: Message | None) -> Message:
        """The message for a model; where its own factors end, what came down stays as it was."""
        assert isinstance(layout, AdapterLayout)
        parts = []
        for entry in layout.entries:
            value, layer = tensors[entry.name], layout.by_name.get(entry.name)
            if layer is not None:
                if came_down is None:
                    whole = torch.zeros(entry.shape, dtype=layout.dtype, device=value.device)
                else:
                    sent = came_down.mean[entry.start : entry.stop].view(entry.shape)
                    whole = sent.to(value.device, copy=True)
                scaling = layer.scaling if entry == layer.pair.b else 1.0
                layer.held(whole, entry).copy_(scaling * value)
                value = whole
            parts.append(value.reshape(-1).to(layout.dtype))
        return Message(torch.cat(parts))

    def write(self, tensors: Tensors, layout: Layout, message: Message, state: State) -> None:
        assert isinstance(layout, AdapterLayout)
        for entry in layout.entries:
            value, layer = (
                message.mean[entry.start : entry.stop].view(entry.shape),
                layout.by_name.get(entry.name),
            )
            if layer is not None:
                value = layer.held(value, entry)
                value = value / layer.scaling if entry == layer.pair.b else value
            tensors[entry.name].copy_(value)
        for name, initial in layout.constants.items():
            tensors[name].copy_(initial)
        for layer in layout.layers:
            if layer.weight is not None:
                weight = tensors[layer.weight]
                weight += layer.rest(message.mean).reshape(weight.shape).to(weight)

    def keep(self, tensors: Tensors, layout: Layout) -> State:
        return EMPTY

    def _rank(self, first: Tensor, second: Tensor, name: str) -> int:
        """The rank R of what travels of a layer."""
        own, inputs, outputs = len(first), first[0].numel(), len(second)
        if first.dim() < 2 or second.dim() < 2 or second[0].numel() != own:
            shapes = f"{tuple(first.shape)} and {tuple(second.shape)}"
            raise InputError(
                f"{name!r} and its second factor have shapes {shapes}; [r, n] and [m, r] are needed."
            )
        if self.rank is None:
            return own
        largest = min(self.rank, inputs, outputs)
        if own > largest:
            raise InputError(
                f"{name!r} has rank {own}, but only rank {largest} of this layer travels; "
                "set a larger `rank` in the sharing `adapter`, or give the model a smaller one."
            )
        return largest


def _why_not_merged(own: AdapterLayout, common: AdapterLayout) -> str | None:
    """The reason why what travels of one model does not fit to another, if there is one."""
    shapes = [{entry.name: entry.shape for entry in each.entries} for each in (own, common)]
    for name in {**shapes[1], **shapes[0]}:
        mine, wanted = (each.get(name) for each in shapes)
        if mine == wanted:
            continue
        if mine is None or wanted is None:
            where = "its model" if wanted is None else "the federation's model"
            return f"{name!r} is trained in {where} only; train and adapt the same layers in both"
        if name in own.by_name and name in common.by_name:
            ranks = own.by_name[name].rank, common.by_name[name].rank
            if ranks[0] != ranks[1]:
                return (
                    f"{name!r} has rank {ranks[0]} there, and rank {ranks[1]} in the federation's model; set "
                    f"a common `rank`, such as {max(ranks)}, in the sharing `adapter`"
                )
        return f"{name!r} is {_in_words(mine)} there, and {_in_words(wanted)} in the federation's model"
    return None


def _in_words(shape: torch.Size) -> str:
    return "×".join(map(str, shape)) or "a number"


def _partner(name: str) -> str:
    """The name of the second factor that belongs to a first one; empty for other names."""
    parts = name.split(".")
    changed = [FACTORS.get(part, part) for part in parts]
    return "" if changed == parts else ".".join(changed)


def _padded(entries: tuple[Entry, ...], ranks: Mapping[str, tuple[int, int]]) -> tuple[Entry, ...]:
    """Entries with the factors padded; `ranks` has the common rank of each, and the dimension to pad."""
    padded: list[Entry] = []
    start = 0
    for entry in entries:
        shape = entry.shape
        if entry.name in ranks:
            rank, place = ranks[entry.name]
            shape = torch.Size([*shape[:place], rank, *shape[place + 1 :]])
        padded.append(replace(entry, shape=shape, start=start, stop=start + shape.numel()))
        start = padded[-1].stop
    return tuple(padded)


def _layer(model: nn.Module, named: Mapping[str, nn.Parameter], pair: Pair) -> Lora:
    """The layer of two factors. The module that holds them says scaling and orientation."""
    parts = pair.a.name.split(".")
    place = next(place for place, part in enumerate(parts) if part in FACTORS)
    owner: Any = model.get_submodule(".".join(parts[:place]))
    scaling = getattr(owner, "scaling", 1.0)
    if isinstance(scaling, Mapping):  # PEFT: one for each adapter of the layer, by its name
        scaling = scaling[parts[place + 1]]
    rank = len(named[pair.a.name])
    if not 0 < abs(float(scaling)) < float("inf"):
        raise InputError(f"{pair.a.name!r} has the scaling {scaling}; it must not be 0.")
    transposed = bool(getattr(owner, "fan_in_fan_out", False)) or "embedding" in parts[place]
    weight = None if rank == pair.rank else _frozen_weight(model, named, parts[:place], pair)
    return Lora(pair, rank, float(scaling), weight, transposed)


def _frozen_weight(model: nn.Module, named: Mapping[str, nn.Parameter], owner: list[str], pair: Pair) -> str:
    """The name of the weight that an adapter changes."""
    size = pair.a.shape[1:].numel() * pair.b.shape[0]
    for last in (["base_layer", "weight"], ["weight"]):
        name = ".".join([*owner, *last])
        weight = named.get(name)
        if weight is None or weight.numel() != size or not weight.is_floating_point() or weight.requires_grad:
            continue
        ties = [each for each, other in model.named_parameters(remove_duplicate=False) if other is weight]
        if len(ties) == 1:
            return name
    raise InputError(
        f"{pair.a.name!r} has a smaller rank than what travels ({pair.rank}), and its layer has no frozen "
        "floating-point weight of its own to add the difference to; give all models the same rank."
    )
