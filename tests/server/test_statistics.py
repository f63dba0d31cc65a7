"""Running statistics are merged robustly: no weighing rule sees them, and one client could send any."""

import pytest
import torch
from aggregating import Fixed, aggregate, reply
from torch import Tensor, nn

import steelyard as sy
from steelyard.attacks import Gaussian, Tail
from steelyard.combining import Mean
from steelyard.data import deal
from steelyard.data.digits import digits
from steelyard.data.partitions import dirichlet
from steelyard.errors import InputError
from steelyard.layout import layout_of
from steelyard.seeds import generator, seeded
from steelyard.server.aggregation import Aggregator
from steelyard.server.statistics import are_variances, merge_statistics
from steelyard.settings import Server
from steelyard.types import Message
from steelyard.weighing import GeometricMedian, Majority, Uniform, Weigher


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float32).unsqueeze(1)


def equal(count: int) -> Tensor:
    return torch.full((count,), 1 / count, dtype=torch.float64)


def test_bounded_by_hand() -> None:
    """Median 2, median deviation 1: values count from 2 − 2.9652 to 2 + 2.9652."""
    merged, cut = merge_statistics(column(0, 1, 2, 3, 1e9), equal(5), "bounded")
    assert merged.tolist() == pytest.approx([(0 + 1 + 2 + 3 + 2 + 2 * 1.4826) / 5])
    assert cut.tolist() == [0, 0, 0, 0, 1]


def test_bounded_is_the_weighted_mean_where_nothing_is_unusual() -> None:
    changes = torch.stack([torch.linspace(-1, 1, 8).roll(step) for step in range(5)], dim=1)
    weights = torch.arange(1.0, 9.0, dtype=torch.float64) / 36
    merged, cut = merge_statistics(changes, weights, "bounded")
    torch.testing.assert_close(merged, weights.float() @ changes)
    assert not cut.any()


@pytest.mark.parametrize("rule", ["bounded", "median"])
@pytest.mark.parametrize("wild", [1e3, -1e9, 9e29])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_wild_statistics_stay_within_what_the_others_send(count: int, wild: float, rule: str) -> None:
    honest = torch.randn(10 - count, 50, generator=torch.Generator().manual_seed(1))
    sent = torch.cat([honest, torch.full((count, 50), wild)])
    merged, _ = merge_statistics(sent, equal(10), rule)  # type: ignore[arg-type]
    typical_error = (merged - honest.mean(dim=0)).square().mean().sqrt()
    assert typical_error < 1.5, "in standard deviations of the honest clients"
    assert float(merge_statistics(sent, equal(10), "mean")[0].abs().max()) > 90


def test_two_clients_are_averaged() -> None:
    merged, _ = merge_statistics(column(1, 5), torch.tensor([0.25, 0.75], dtype=torch.float64), "bounded")
    assert merged.tolist() == [4]


def test_negative_weights_do_not_count() -> None:
    weights = torch.tensor([1.5, -1.0, 0.5], dtype=torch.float64)
    merged, _ = merge_statistics(column(1, 2, 3), weights, "bounded")
    assert merged.tolist() == pytest.approx([1.5])


def test_parameters_follow_the_combiner_and_statistics_their_own_rule() -> None:
    replies = [reply("a", 1, 10), reply("b", 2, 20), reply("c", 3, 1e9)]
    done = aggregate(replies, weigher=Fixed(0.5, 0.25, 0.25), num_parameters=1, statistics="median")
    assert done.state.message.mean.tolist() == [1.75, 15.0]
    done = aggregate(replies, weigher=Fixed(0.5, 0.25, 0.25), num_parameters=1)
    assert done.evidence["statistics_cut"].tolist() == [0, 0, 1]


def test_without_statistics_there_is_no_evidence_of_them() -> None:
    assert "statistics_cut" not in aggregate([reply("a", 1, 2), reply("b", 1, 2)]).evidence


def test_variances_are_found_by_name() -> None:
    layout = layout_of(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    assert are_variances(layout).tolist() == [False] * 3 + [True] * 3
    assert are_variances(layout_of(nn.Linear(2, 3))).tolist() == []


@pytest.mark.parametrize("rule", ["bounded", "median", "mean"])
def test_a_variance_never_becomes_negative(rule: str) -> None:
    server = Server(statistics=rule)  # type: ignore[arg-type]
    aggregator = Aggregator(Uniform(), Mean(), server, 1, torch.tensor([False, True]))
    state = aggregator.init(Message(torch.tensor([0.0, 1.0, 1.0])))
    replies = [reply(client, 0, -5, -5) for client in "abc"]
    assert aggregator.aggregate(state, replies, "abc", 1).state.message.mean.tolist() == [0, -4, 0]


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(InputError, match=r"server\.statistics must be"):
        Server(statistics="mode")  # type: ignore[arg-type]


@pytest.mark.parametrize("weighing", [Majority(), GeometricMedian()], ids=lambda rule: type(rule).__name__)
def test_one_client_with_wild_statistics_costs_less_than_two_points(weighing: Weigher) -> None:
    data = digits()
    clients = deal(data, dirichlet(data.train.labels, 10, generator(0, "partition"), alpha=1.0), 0)
    wild = Tail(Gaussian(1000.0), size=64)  # the statistics only: every parameter is honest

    def accuracy(adversaries: int, **server: str) -> float:
        with seeded(0, "model"):
            body = (nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 10))
        algorithm = sy.Algorithm(weighing=weighing, server=Server(**server))  # type: ignore[arg-type]
        attackers = dict.fromkeys(list(clients)[:adversaries], wild)
        federation = sy.Federation(
            clients, nn.Sequential(*body), algorithm, test=data.test, rounds=10, adversaries=attackers
        )
        return float(federation.run().history[-1]["accuracy"])

    clean = accuracy(0)
    assert clean > 0.85
    assert accuracy(1) > clean - 0.02
    assert accuracy(1, statistics="mean") < 0.5
