"""Updates with a common direction, and a round of Concord, that the tests of Concord share."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing import Concord
from steelyard.weighing.geometry import Geometry

SEEDS = pytest.mark.parametrize("seed", range(3))


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def weigh(
    rule: Concord,
    updates: Tensor,
    state: State | None = None,
    clients: Sequence[str] | None = None,
    counts: Sequence[float] | None = None,
) -> Weighed:
    names = tuple(clients or (str(position) for position in range(len(updates))))
    claimed = torch.tensor(counts or [1.0] * len(updates), dtype=torch.float64)
    before = rule.init() if state is None else state
    return rule.weigh(Geometry(updates), RoundInfo(1, names, claimed), before)


def clean(seed: int, clients: int = 10, size: int = 2000, common: float = 1.0) -> Tensor:
    """A common direction plus one of each client's own: cosines of ½ if `common` is 1, less below."""
    return common * normal(seed, size) + normal(1000 + seed, clients, size)


def cosines_with_others(updates: Tensor) -> Tensor:
    """Each update's cosine with the sum of the others' directions, from the updates themselves."""
    units = torch.nn.functional.normalize(updates, dim=1)
    return torch.stack([one @ torch.nn.functional.normalize(units.sum(dim=0) - one, dim=0) for one in units])
