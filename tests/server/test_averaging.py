"""The server's mean of the last models: what is evaluated and kept, and not what clients start from."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import steelyard as sy
from steelyard.algorithm import Algorithm
from steelyard.combining import Combiner, Mean
from steelyard.errors import InputError
from steelyard.runs.folder import MODEL, states_in
from steelyard.runs.reader import Run, runs_in
from steelyard.runs.state_file import load_state
from steelyard.server.aggregation import Aggregated, Aggregator, averaged
from steelyard.server.result import Result
from steelyard.settings import Server
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.types import Combined, Message, Reply, Round, Stack
from steelyard.weighing import Samples

MODELS = (10.0, 5.0, 9.0, 1.0, 10.0, -2.0)
"""Of one coordinate, after each round; the first round starts from 100."""


class MeanAndVariance(Combiner):
    needs = frozenset({"mean", "variance"})

    def combine(self, stack: Stack, weights: Tensor) -> Combined:
        assert stack.variance is not None
        return Combined(weights.float() @ stack.mean, weights.float() @ stack.variance)


def go(
    average: int,
    models: Sequence[float] = MODELS,
    variances: Sequence[float] | None = None,
    start: Message | None = None,
) -> list[Aggregated]:
    """Rounds in which one client asks for these models; one that asks for nan is refused."""
    combiner = Mean() if variances is None else MeanAndVariance()
    aggregator = Aggregator(Samples(), combiner, Server(average=average), 1)
    start = start or Message(torch.tensor([100.0]), None if variances is None else torch.tensor([100.0]))
    state, done = aggregator.init(start), []
    for number, model in enumerate(models, start=1):
        update = torch.tensor([model]) - state.message.mean
        variance = None if variances is None else torch.tensor([variances[number - 1]])
        reply = Reply("a", Message(update, variance), 10)
        done.append(aggregator.aggregate(state, [reply], ["a"], number))
        state = done[-1].state
    return done


@pytest.mark.parametrize(
    ("window", "means"),
    [
        # Shares 4/(t + 3) = 1, 4/5, 4/6, 4/7, 4/8, 4/9:
        # 10; 10 − .8·5 = 6; 6 + 3·2/3 = 8; 8 − 7·4/7 = 4; 4 + 6/2 = 7; 7 − 9·4/9 = 3.
        (100, [10, 6, 8, 4, 7, 3]),
        # At least a half: the last is 7 − 9/2.
        (2, [10, 6, 8, 4, 7, 2.5]),
    ],
)
def test_the_mean_of_models_by_hand(window: int, means: list[float]) -> None:
    done = go(window)
    assert [float(each.state.evaluated_model.mean) for each in done] == pytest.approx(means, abs=1e-5)
    assert [float(each.state.message.mean) for each in done] == list(MODELS), "what clients start from"


def test_a_model_counts_with_at_least_one_in_the_window() -> None:
    shares = [
        float(averaged(Message(torch.zeros(1)), Message(torch.ones(1)), 5, t).mean) for t in range(1, 40)
    ]  # type: ignore[union-attr]
    assert shares == pytest.approx([4 / (t + 3) for t in range(1, 18)] + [0.2] * 22)


def test_a_window_of_one_keeps_no_mean_and_changes_nothing() -> None:
    done = go(1)
    assert all(each.state.average is None for each in done)
    assert all(each.state.evaluated_model is each.state.message for each in done)
    plain = quick()
    assert model_bits(quick(average=1)) == model_bits(plain)


def test_the_first_model_is_kept_as_it_is() -> None:
    start = Message(torch.tensor([1e20]))  # of which nothing may be left
    state = go(5, models=[0.1], start=start)[0].state
    assert state.average is not None
    assert torch.equal(state.average.mean, state.message.mean)


def test_the_state_before_is_not_touched() -> None:
    done = go(5)
    assert float(done[1].state.evaluated_model.mean) == pytest.approx(6)
    assert float(done[0].state.evaluated_model.mean) == 10


def test_a_skipped_round_leaves_the_mean_as_it_is() -> None:
    done = go(100, models=[10.0, math.nan, 4.0])
    assert done[1].skipped
    assert done[1].state is done[0].state
    # Third round: 10 − 6·4/6.
    assert float(done[2].state.evaluated_model.mean) == pytest.approx(6)


def test_variances_are_averaged_alike() -> None:
    done = go(100, models=[1.0, 1.0, 1.0], variances=[10.0, 5.0, 9.0])
    means = [each.state.evaluated_model.variance for each in done]
    assert [float(mean) for mean in means if mean is not None] == pytest.approx([10, 6, 8])
    assert [
        float(each.state.message.variance) for each in done if each.state.message.variance is not None
    ] == [
        10,
        5,
        9,
    ]


def test_a_variance_that_is_not_on_both_sides_is_the_newest() -> None:
    plain, posterior = Message(torch.zeros(1)), Message(torch.ones(1), torch.ones(1))
    assert averaged(plain, posterior, 5, 2) == Message(torch.tensor([0.8]), posterior.variance)
    gone = averaged(posterior, plain, 5, 2)
    assert gone is not None
    assert gone.variance is None


@pytest.mark.parametrize("average", [0, -3])
def test_a_mean_of_no_rounds_is_refused(average: int) -> None:
    with pytest.raises(InputError, match=rf"server\.average .* at least 1, not {average}"):
        Server(average=average)
    with pytest.raises(InputError, match="average"):
        quick(average=average)


# In a run


def quick(average: int | None = None, rounds: int = 4, out: Path | None = None, **settings: Any) -> Result:
    small = {"data.clients": 5, "clients_per_round": 3, "training.steps": 3, "training.lr": 0.3}
    server = {} if average is None else {"server.average": average}
    return sy.run(None, rounds=rounds, out=out, **{**small, **server, **settings})


def model_bits(result: Result) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in result.model.state_dict().items()}


def vector(result: Result) -> Tensor:
    return torch.cat([value.flatten() for value in result.model.state_dict().values()]).double()


def test_a_run_leaves_the_mean_of_the_models_of_the_same_run_without_one() -> None:
    models = [vector(quick(rounds=rounds)) for rounds in (1, 2, 3, 4)]
    mean = models[0]
    for share, model in zip((4 / 5, 4 / 6, 4 / 7), models[1:], strict=True):
        mean = mean + share * (model - mean)
    torch.testing.assert_close(vector(quick(average=5)), mean, rtol=1e-5, atol=1e-6)
    assert float((mean - models[-1]).abs().max()) > 1e-3


def test_clients_start_from_the_last_model_and_the_mean_is_what_is_evaluated() -> None:
    plain, mean = quick(), quick(average=5)
    for one, other in zip(plain.history, mean.history, strict=True):
        assert (one["loss"], one["effective_clients"]) == (other["loss"], other["effective_clients"])
        assert (one["nll"] == other["nll"]) == (one["round"] == 1)
    for one, other in zip(plain.clients, mean.clients, strict=True):
        assert (one.get("norm"), one.get("loss")) == (other.get("norm"), other.get("loss"))


def test_what_is_evaluated_is_the_model_that_is_left() -> None:
    random = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    inputs = torch.randn(40, 2, generator=random)
    labels = (inputs[:, 0] > 0).long()
    clients = {"oslo": (inputs[:10], labels[:10]), "turin": (inputs[10:20], labels[10:20])}
    federation = Federation(
        clients,
        nn.Linear(2, 2),
        Algorithm(server=Server(average=5)),
        test=(inputs[20:], labels[20:]),
        rounds=5,
    )
    result = federation.run()
    with torch.no_grad():
        nll = float(F.cross_entropy(result.model(inputs[20:]), labels[20:]))
    assert result.history[-1]["nll"] == pytest.approx(nll, rel=1e-5)


def test_a_recorded_run_keeps_the_mean_as_its_model_and_both_in_its_state(tmp_path: Path) -> None:
    result = quick(average=5, out=tmp_path)
    assert result.path is not None
    saved = load_file(result.path / MODEL)
    assert {name: value.numpy().tobytes() for name, value in saved.items()} == model_bits(result)
    server = load_state(states_in(result.path)[4]).server
    assert server.average is not None
    assert server.average.variance is None
    torch.testing.assert_close(server.average.mean.double(), vector(result))
    torch.testing.assert_close(server.message.mean.double(), vector(quick()))


class BreakOffError(Exception):
    """Something that ends a run in the middle."""


def test_a_run_that_broke_off_goes_on_with_its_mean_to_the_same_bits(tmp_path: Path) -> None:
    def break_off(round: Round) -> None:
        if round.number == 4:
            raise BreakOffError

    spec = {
        "rounds": 7,
        "clients_per_round": 3,
        "data": {"clients": 5},
        "server": {"average": 3, "momentum": 0.5},
    }
    wanted = sy.run(spec, out=tmp_path / "whole")
    with pytest.raises(BreakOffError):
        sy.run(spec, break_off, out=tmp_path / "broken")
    (broken,) = runs_in(tmp_path / "broken")
    assert load_state(list(states_in(broken.path).values())[-1]).server.average is not None
    found = sy.resume(broken.path)
    assert wanted.path is not None
    assert (broken.path / MODEL).read_bytes() == (wanted.path / MODEL).read_bytes()
    assert Run(broken.path).rounds == Run(wanted.path).rounds
    assert model_bits(found) == model_bits(wanted)


def test_a_state_without_a_mean_has_none_when_it_comes_back(tmp_path: Path) -> None:
    result = quick(out=tmp_path, rounds=2)
    assert result.path is not None
    assert load_state(states_in(result.path)[2]).server.average is None
