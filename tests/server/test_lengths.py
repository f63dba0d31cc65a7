"""Updates far longer than usual are rejected before they are weighed, with the reason."""

import math

import pytest
import torch
from aggregating import aggregate, replies_of, reply

from steelyard.errors import InputError
from steelyard.server.aggregation import ServerState
from steelyard.server.lengths import RECENT_ROUNDS, ordered, usual_norm
from steelyard.settings import Server
from steelyard.types import Message, Reply
from steelyard.weighing import Uniform


def norms(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def usual(now: torch.Tensor, before: torch.Tensor | None) -> float:
    return usual_norm(ordered(now), before)


def of_lengths(*lengths: float) -> list[Reply]:
    return [reply(client, 0.6 * s, -0.8 * s) for client, s in zip("abcdefghij", lengths, strict=False)]


@pytest.mark.parametrize("scale", [101.0, 1e3, 1e9, 1e29])
def test_a_wild_update_is_rejected_by_name_and_moves_nothing(scale: float) -> None:
    done = aggregate(of_lengths(1, 2, 3, 2 * scale), weigher=Uniform())
    assert done.clients == ("a", "b", "c")
    assert done.rejected["d"].startswith(
        f"sent an update of norm {2 * scale:.3g}, {scale:.3g} times the usual 2"
    )
    assert "server.max_norm_ratio is 100" in done.rejected["d"]
    torch.testing.assert_close(done.state.message.mean, torch.tensor([1.2, -1.6]))


def test_lengths_that_differ_a_hundredfold_are_all_used() -> None:
    assert len(aggregate(of_lengths(0.01, 1, 1, 1, 100)).clients) == 5


def test_the_screen_is_off_only_by_asking() -> None:
    done = aggregate(of_lengths(1, 1, 1, 1e9), weigher=Uniform(), max_norm_ratio=math.inf)
    assert len(done.clients) == 4
    assert float(done.state.message.mean.norm()) > 1e8


def test_the_usual_norm_by_hand() -> None:
    assert usual(norms(5, 1, 3), None) == 3
    assert usual(norms(4, 1, 3, 2), None) == 2, "the lower of the two in the middle"
    assert usual(norms(0, 0, 0, 0, 7, 8, 9), None) == 8, "updates of 0 do not count"
    assert usual(norms(1, 1e9), None) == math.inf, "nothing shows which of the two is unusual"
    assert usual(norms(1e9, 2e9, 3e9), norms(1, 2, 3)) == 2, "most of a round may be wild"
    assert usual(norms(1, 2, 3), norms(1e3, 1e3, 1e3)) == 2, "a model that has almost converged"
    recent = norms(*[1e6] * RECENT_ROUNDS, *[1.0] * RECENT_ROUNDS)
    assert usual(norms(5, 5, 5), recent) == 1


def test_most_of_a_round_may_be_wild_if_the_rounds_before_were_not() -> None:
    state = ServerState(Message(torch.zeros(2)), medians=norms(1, 1, 1))
    done = aggregate(of_lengths(1e9, 1e9, 1), start=state, weigher=Uniform(), quorum=0.1)
    assert done.clients == ("c",)
    assert done.state.medians is not None
    assert done.state.medians.tolist() == [1, 1, 1, 100], "at most what was allowed"


def test_lengths_that_stay_become_the_usual_ones() -> None:
    """A learning rate that is raised a thousandfold costs some rounds, not the run."""
    state, used = ServerState(Message(torch.zeros(2))), []
    for number in range(30):
        size = 1.0 if number < 5 else 1000.0
        done = aggregate(of_lengths(size, size, size), start=state, weigher=Uniform())
        state = done.state
        used.append(not done.skipped)
    assert used == [*[True] * 5, *[False] * 5, *[True] * 20]


def test_a_merged_model_that_is_not_finite_skips_the_round() -> None:
    rows = [torch.full((4,), 9e29) for _ in range(3)]
    start = ServerState(Message(torch.zeros(4)))
    done = aggregate(replies_of(rows), start=start, weigher=Uniform(), lr=1e10)
    assert done.skipped == "the merged model was not finite"
    assert done.state is start


@pytest.mark.parametrize("ratio", [1.0, 0.0, -3.0, math.nan])
def test_a_ratio_that_would_reject_ordinary_updates_is_refused(ratio: float) -> None:
    with pytest.raises(InputError, match=r"server\.max_norm_ratio must be greater than 1"):
        Server(max_norm_ratio=ratio)
