"""Rules that bound lengths: how far one client moves the model is weight × factor × norm."""

import torch
from torch import Tensor

from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing import Consensus, Majority, Weigher
from steelyard.weighing.geometry import Geometry


def weigh(
    rule: Weigher, updates: Tensor, state: State | None = None, counts: Tensor | None = None
) -> Weighed:
    clients = tuple(f"c{position:02}" for position in range(len(updates)))
    counts = torch.ones(len(updates), dtype=torch.float64) if counts is None else counts
    return rule.weigh(
        Geometry(updates), RoundInfo(1, clients, counts), rule.init() if state is None else state
    )


def contributions(weighed: Weighed, updates: Tensor) -> Tensor:
    """How far each client moves the model, in median norms of the round, [J]."""
    norms = torch.linalg.vector_norm(updates.double(), dim=1)
    scale = 1.0 if weighed.scale is None else weighed.scale
    return weighed.weights * scale * norms / norms.sort().values[(len(norms) - 1) // 2]


def test_consensus_bounds_an_aligned_update_a_hundred_times_as_long() -> None:
    """Four clients point against the momentum, so that one has all the weight."""
    against = torch.tensor([[-0.99, 0.141]]).repeat(4, 1)
    updates = torch.cat([against, torch.tensor([[100.0, 0.0]])])
    state = {"momentum": torch.tensor([1.0, 0.0], dtype=torch.float64)}
    weighed = weigh(Consensus(bound=1.0), updates, state)
    assert float(weighed.weights[-1]) == 1.0
    assert float(contributions(weighed, updates).max()) <= 1.0001
    assert float(contributions(weigh(Consensus(), updates, state), updates).max()) > 99


def test_no_contribution_to_majority_is_longer_than_the_median_norm() -> None:
    random = torch.Generator().manual_seed(0)
    longest, without = 0.0, 0.0
    for _ in range(2000):
        clients = int(torch.randint(2, 12, (1,), generator=random))
        size = int(torch.randint(2, 30, (1,), generator=random))
        lengths = torch.exp(2.5 * torch.randn(clients, 1, generator=random))
        common = torch.randn(size, generator=random) * torch.rand(1, generator=random) * 2
        updates = lengths * (common + torch.randn(clients, size, generator=random))
        counts = torch.randint(1, 500, (clients,), generator=random).double()
        weighed = weigh(Majority(), updates, counts=counts)
        longest = max(longest, float(contributions(weighed, updates).max()))
        without = max(without, float(contributions(weighed._replace(scale=None), updates).max()))
    assert longest <= 1.0001
    assert without > 3, "the weights alone would not bound it"
