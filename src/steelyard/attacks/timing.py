"""Adversaries that attack in some rounds only."""

from dataclasses import dataclass

import torch

from steelyard.attacks.base import Attack, Scene, Wrapper
from steelyard.attacks.vectors import SignFlip
from steelyard.errors import InputError
from steelyard.types import Reply


@dataclass(frozen=True)
class OnOff(Wrapper):
    """From round `start`, attack for `on` rounds and be honest for `off` rounds, in turn (Sun et al., 2006).

    Honest before `start`, so that rules with a memory trust the client at first and again after each pause.
    """

    attack: Attack = SignFlip()  # noqa: RUF009 - a frozen value
    start: int = 6
    on: int = 5
    off: int = 5

    def __post_init__(self) -> None:
        for name, minimum in (("start", 1), ("on", 1), ("off", 0)):
            if getattr(self, name) < minimum:
                raise InputError(
                    f"attack 'on-off': {name} must be at least {minimum}, not {getattr(self, name)}."
                )
        if self.attack.poisons:
            raise InputError(
                "attack 'on-off' cannot wrap an attack on labels, because labels are poisoned for the whole "
                "run; choose an attack on updates, or use the label attack alone."
            )

    def attacks_in(self, round: int) -> bool:
        return round >= self.start and (round - self.start) % (self.on + self.off) < self.on

    def reply(self, scene: Scene, own: Reply, generator: torch.Generator) -> Reply:
        return self.attack.reply(scene, own, generator) if self.attacks_in(scene.round) else own
