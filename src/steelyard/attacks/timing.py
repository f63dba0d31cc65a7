"""Adversaries that are not always adversaries."""

from dataclasses import dataclass

import torch

from steelyard.attacks.base import Attack, Scene, Wrapper
from steelyard.attacks.vectors import SignFlip
from steelyard.errors import InputError
from steelyard.types import Reply


@dataclass(frozen=True)
class OnOff(Wrapper):
    """From round `start`, attack for `on` rounds and be honest for `off`, by turns (Sun et al., 2006).

    Until then it is honest too: trust is earned, spent and earned again.
    """

    attack: Attack = SignFlip()  # noqa: RUF009 - a frozen value
    start: int = 6
    on: int = 5
    off: int = 5

    def __post_init__(self) -> None:
        for name, least in (("start", 1), ("on", 1), ("off", 0)):
            if getattr(self, name) < least:
                raise InputError(
                    f"attack 'on-off': {name} must be at least {least}, not {getattr(self, name)}."
                )
        if self.attack.poisons:
            raise InputError(
                "attack 'on-off' needs an attack on what is sent inside it, because labels are poisoned for "
                "the whole run; choose another, or the label attack alone."
            )

    def attacks_in(self, round: int) -> bool:
        return round >= self.start and (round - self.start) % (self.on + self.off) < self.on

    def reply(self, scene: Scene, own: Reply, generator: torch.Generator) -> Reply:
        return self.attack.reply(scene, own, generator) if self.attacks_in(scene.round) else own
