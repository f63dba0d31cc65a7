"""What rules remember of each client across rounds in which only some clients take part."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load, save
from torch import Tensor

from steelyard import components
from steelyard.runs.state_file import load_state, save_state
from steelyard.server.aggregation import ServerState
from steelyard.server.state import FederationState
from steelyard.types import Message, RoundInfo, State, Weighed
from steelyard.weighing import Concord, Consensus, IcovVb, IvarMle, IvarVb, Majority, Weigher
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.pairs import Pairs

Array = NDArray[np.float64]

NAMES = ("ward/3 bed/7", "клиника-2", "日本/病院", "a b", "", "latent/noise")
ROUNDS = ((0, 1, 2, 3, 4), (1, 3, 5), (0, 1, 2, 4, 5), (0, 3, 4, 5))
REMEMBERING = [Concord(), Consensus(), IvarMle(), IvarVb(), IcovVb(), IcovVb(factors=2)]


def draw(number: int, size: int = 60) -> Tensor:
    """The updates of a round: rounds differ in scale, clients in noise."""
    generator = torch.Generator().manual_seed(number)
    truth = torch.randn(size, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(NAMES), size, generator=generator, dtype=torch.float64)
    return 3.0**-number * (truth + noise * torch.linspace(0.5, 2, len(NAMES)).double().unsqueeze(1))


def weigh(rule: Weigher, number: int, present: Sequence[int], state: State) -> Weighed:
    clients = tuple(NAMES[one] for one in present)
    counts = torch.ones(len(present), dtype=torch.float64)
    return rule.weigh(Geometry(draw(number)[list(present)]), RoundInfo(number, clients, counts), state)


def run(rule: Weigher, rounds: Sequence[Sequence[int]] = ROUNDS) -> list[Weighed]:
    results: list[Weighed] = []
    for number, present in enumerate(rounds, start=1):
        results.append(weigh(rule, number, present, results[-1].state if results else rule.init()))
    return results


def seen(rounds: Sequence[Sequence[int]]) -> set[str]:
    return {NAMES[one] for present in rounds for one in present}


def remembered(state: State) -> set[str]:
    """The clients in the state: those with a row of their own, or in pairs."""
    return {key.partition("/")[2] for key in rows(state)} | set(Pairs.of(state).clients)


def rows(state: State) -> set[str]:
    """The keys that belong to a client. A key without "/" ("momentum") belongs to the whole round."""
    return {key for key in state if "/" in key}


class Variances:
    """σ_j² = the mean over the rounds i ∈ I_j that client j was seen in (Algorithm 1, line 3; eq. 13).

    Two things are our own: a round's noise is divided by its median over the clients, because rounds differ
    in scale; and a round that lies `age` rounds of that client back counts memory^age.
    """

    def __init__(self, memory: float) -> None:
        self.memory = memory
        self.relative: dict[str, list[float]] = {}

    def of(self, noise: Mapping[str, float]) -> dict[str, float]:
        typical = float(np.median(list(noise.values())))
        variances = {}
        for j, now in noise.items():
            history = [*(past * typical for past in self.relative.get(j, [])), now]
            shares = [self.memory**age for age in reversed(range(len(history)))]
            variances[j] = float(np.average(history, weights=shares))
        return variances

    def keep(self, noise: Mapping[str, float]) -> None:
        typical = float(np.median(list(noise.values())))
        for j, now in noise.items():
            self.relative.setdefault(j, []).append(now / typical)


def moved(a: Mapping[str, float], before: Mapping[str, float]) -> float:
    return max(abs(a[j] - before[j]) for j in a)


def ivar_mle(x: Mapping[str, Array], variances: Variances) -> dict[str, float]:
    """Algorithm 1 for one round, then the round joins the past."""
    a, step = dict.fromkeys(x, 1 / len(x)), 1.0
    for _ in range(20):
        if step <= 1e-9:
            break
        y = sum(a[j] * x[j] for j in x)
        sigma2 = variances.of({j: float(np.mean((x[j] - y) ** 2)) for j in x})
        epsilon = 1e-3 * float(np.median(list(sigma2.values())))
        total = sum(1 / max(epsilon, sigma2[j]) for j in x)
        before, a = a, {j: 1 / max(epsilon, sigma2[j]) / total for j in x}
        step = moved(a, before)
    y = sum(a[j] * x[j] for j in x)
    variances.keep({j: float(np.mean((x[j] - y) ** 2)) for j in x})
    return a


def ivar_vb(x: Mapping[str, Array], variances: Variances) -> dict[str, float]:
    """Eqs. 10 to 13 for one round, then the round joins the past."""
    tau2 = float(np.mean([np.mean(x_j**2) for x_j in x.values()]))
    noise, a, step = dict.fromkeys(x, tau2), dict.fromkeys(x, 1 / len(x)), 1.0
    for _ in range(5000):
        if step <= 1e-12:
            break
        sigma2 = variances.of(noise)
        lam = 1 / (1 / tau2 + sum(1 / sigma2[j] for j in x))
        before, a = a, {j: lam / sigma2[j] for j in x}
        y = sum(a[j] * x[j] for j in x)
        tau2 = lam + float(np.mean(y**2))
        noise = {j: lam + float(np.mean((x[j] - y) ** 2)) for j in x}
        step = moved(a, before)
    variances.keep(noise)
    return {j: a[j] / sum(a.values()) for j in x}


@pytest.mark.parametrize("memory", [1.0, 0.5, 0.0])
@pytest.mark.parametrize(("rule", "naive"), [(IvarMle, ivar_mle), (IvarVb, ivar_vb)])
def test_four_rounds_agree_with_the_paper_by_id(rule: type, naive: object, memory: float) -> None:
    variances = Variances(memory)
    for number, (present, weighed) in enumerate(zip(ROUNDS, run(rule(memory=memory)), strict=True), start=1):
        updates = draw(number).numpy()
        expected = naive({NAMES[one]: updates[one] for one in present}, variances)  # type: ignore[operator]
        np.testing.assert_allclose(weighed.weights.numpy(), list(expected.values()), rtol=1e-6)


@pytest.mark.parametrize("rule", [IvarMle, IvarVb])
def test_the_past_matters_only_to_a_rule_with_memory(rule: type) -> None:
    fresh = weigh(rule(), 4, ROUNDS[3], {}).weights
    torch.testing.assert_close(run(rule(memory=0.0))[-1].weights, fresh, rtol=1e-9, atol=0)
    assert float((run(rule(memory=1.0))[-1].weights - fresh).abs().max()) > 1e-4


@pytest.mark.parametrize("rule", REMEMBERING, ids=repr)
def test_an_absent_client_keeps_its_state(rule: Weigher) -> None:
    results = run(rule)
    for before, after, present in zip(results, results[1:], ROUNDS[1:], strict=False):
        here = {NAMES[one] for one in present}
        absent = [key for key in rows(before.state) if key.partition("/")[2] not in here]
        assert absent or not rows(before.state), "no client is remembered yet"
        assert all(torch.equal(before.state[key], after.state[key]) for key in absent)


@pytest.mark.parametrize("name", sorted(components.names("weighing")))
def test_the_state_is_of_clients_that_took_part_and_of_no_other(name: str) -> None:
    rule = components.build("weighing", {"name": name})
    state = run(rule, ROUNDS[:1])[-1].state
    assert remembered(state) in (set(), seen(ROUNDS[:1]))


@pytest.mark.parametrize("rule", [*REMEMBERING, Majority()], ids=repr)
def test_the_state_survives_safetensors(rule: Weigher, tmp_path: Path) -> None:
    """As bare bytes and as part of a federation's state: the next round is the same to the bit."""
    state = run(rule, ROUNDS[:3])[-1].state
    path = tmp_path / "state.safetensors"
    save_state(FederationState(3, ServerState(Message(torch.zeros(2)), state)), path)
    straight = weigh(rule, 4, ROUNDS[3], state)
    for restored in (
        load(save({key: value.clone() for key, value in state.items()})),
        load_state(path).server.weighing,
    ):
        assert restored.keys() == state.keys()
        assert all(torch.equal(restored[key], state[key]) for key in state)
        assert torch.equal(weigh(rule, 4, ROUNDS[3], restored).weights, straight.weights)


def test_icov_vb_keeps_latent_vectors_by_id() -> None:
    """The order in which clients stand in a round has nothing to do with what is remembered of them."""
    rule = IcovVb(factors=2)
    state = run(rule, ROUNDS[:1])[-1].state
    assert {key for key in state if key.startswith("latent/")} == {
        f"latent/{one}" for one in seen(ROUNDS[:1])
    }
    assert all(state[f"latent/{one}"].shape == (2,) for one in seen(ROUNDS[:1]))
    straight, turned = weigh(rule, 2, (0, 1, 2, 3, 4), state), weigh(rule, 2, (4, 2, 0, 1, 3), state)
    order = torch.tensor([4, 2, 0, 1, 3])
    torch.testing.assert_close(turned.weights, straight.weights[order], rtol=1e-6, atol=1e-9)
    for key, value in straight.state.items():
        torch.testing.assert_close(turned.state[key], value, rtol=1e-5, atol=1e-7)


def test_icov_vb_goes_on_from_the_latent_vectors_it_remembers() -> None:
    """With the noise of the past forgotten (memory = 0) the latent vectors alone carry over."""
    rule = IcovVb(memory=0.0, iterations=3)
    state = dict(run(rule, ROUNDS[:1])[-1].state)
    kept = weigh(rule, 2, ROUNDS[0], state).weights
    state["latent/a b"] = -3 * state["latent/a b"]
    assert float((weigh(rule, 2, ROUNDS[0], state).weights - kept).abs().max()) > 1e-6
