"""What every weighing rule promises, as checks that take a case. `test_weighing.py` and the rule in
CONTRIBUTING.md both go through them."""

import copy
import re

import numpy as np
import torch
from cases import WeigherCase
from torch import Tensor

from steelyard.metrics.own import EVIDENCE
from steelyard.types import RoundInfo, Weighed
from steelyard.verdicts.reasons import from_json, to_json
from steelyard.verdicts.sentences import verdicts_of
from steelyard.weighing import Weigher
from steelyard.weighing.geometry import Geometry

CLIENTS = 6
SIZE = 40


def draw(seed: int, clients: int = CLIENTS, size: int = SIZE) -> tuple[Tensor, Tensor]:
    """Updates with a common direction, and unequal counts."""
    generator = torch.Generator().manual_seed(seed)
    common = torch.randn(size, generator=generator)
    updates = common + torch.randn(clients, size, generator=generator)
    return updates, torch.randint(1, 500, (clients,), generator=generator).double()


def weigh(rule: Weigher, updates: Tensor, counts: Tensor, state: object = None, round: int = 1) -> Weighed:
    names = tuple(f"client-{position}" for position in range(len(updates)))
    before = rule.init() if state is None else state
    return rule.weigh(Geometry(updates), RoundInfo(round, names, counts), before)


def check_reference(case: WeigherCase) -> None:
    for seed in range(5):
        agree(case, *draw(seed))


def agree(case: WeigherCase, updates: Tensor, counts: Tensor) -> None:
    """The rule gives what its naive form gives."""
    expected = case.reference(updates.double().numpy(), counts.numpy())
    np.testing.assert_allclose(
        weigh(case.rule, updates, counts).weights.numpy(), expected, rtol=1e-6, atol=1e-9
    )


def check_weights(case: WeigherCase) -> None:
    """One finite float64 weight per client, summing to 1, for updates of any scale; valid evidence shapes."""
    for scale in (1e-12, 1.0, 1e12):
        updates, counts = draw(1)
        weighed = weigh(case.rule, updates * scale, counts)
        assert weighed.weights.dtype == torch.float64
        assert weighed.weights.shape == (CLIENTS,)
        assert torch.isfinite(weighed.weights).all()
        torch.testing.assert_close(weighed.weights.sum(), torch.tensor(1.0, dtype=torch.float64))
        assert all(value.shape in ((), (CLIENTS,)) for value in weighed.evidence.values())


ACCUSING = re.compile(
    r"attack|advers|malic|hostil|poison|cheat|\blie|fraud|suspicio|honest|trust", re.IGNORECASE
)


def check_reasons(case: WeigherCase) -> None:
    """There are words for every figure that the rule gives as evidence, and they accuse no client."""
    updates, counts = draw(1)
    weighed = weigh(case.rule, updates, counts)
    figures = {name for name, values in weighed.evidence.items() if values.shape == (CLIENTS,)}
    named = {name for reason in case.rule.reasons for name in (reason.factor, reason.shown)}
    of_the_round = weighed.evidence.keys() - figures
    assert of_the_round <= EVIDENCE, "add it to `metrics/own.py`, so that no metric is called like it"
    assert case.rule.reasons, "a rule brings the words for its evidence along: `reasons`"
    assert figures <= named <= figures | {"num_examples", "norm", "weight"}
    for reason in case.rule.reasons:
        texts = [text for text in (reason.less, reason.more, reason.against, reason.same) if text]
        assert texts
        assert reason.label or reason.same, "a figure that sets a client apart is quoted"
        for text in texts:
            assert text == text.strip().rstrip(".")
            assert text[0].islower()
            assert not ACCUSING.search(text), text
    assert from_json(to_json(case.rule.reasons)) == case.rule.reasons


def check_verdicts(case: WeigherCase) -> None:
    """Every client gets a sentence, and a client with unusual figures and a small share gets a reason."""
    rows: list[dict[str, object]] = []
    state = case.rule.init()
    for number in range(1, 5):
        updates, counts = draw(number)
        updates[0] = 50 * torch.randn(updates.shape[1], generator=torch.Generator().manual_seed(number))
        weighed = weigh(case.rule, updates, counts, state, number)
        state = weighed.state
        rows += _rows(number, updates, counts, weighed)
    found = verdicts_of(rows, case.rule.reasons)
    assert list(found) == [f"client-{place}" for place in range(CLIENTS)]
    for client, verdict in found.items():
        assert verdict.text.startswith(f"{client} counted for ")
        assert verdict.text.endswith(".")
        assert "nan" not in verdict.text
        assert "(equal share 17 %): " in verdict.text
    share = found["client-0"].share
    if share is not None and share < 0.05:
        assert any(reason.less in found["client-0"].text for reason in case.rule.reasons if reason.less)


def _rows(number: int, updates: Tensor, counts: Tensor, weighed: Weighed) -> list[dict[str, object]]:
    """The rows of a round, as the record has them."""
    columns = {"weight": weighed.weights, "num_examples": counts, "norm": updates.double().norm(dim=1)}
    columns |= {name: values for name, values in weighed.evidence.items() if values.dim() == 1}
    return [
        {"round": number, "client": f"client-{place}", "status": "used"}
        | {name: float(values[place]) for name, values in columns.items()}
        for place in range(len(updates))
    ]


def check_permutation(case: WeigherCase) -> None:
    """The order of the clients does not matter."""
    updates, counts = draw(2)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    straight = weigh(case.rule, updates, counts).weights
    shuffled = weigh(case.rule, updates[order], counts[order]).weights
    torch.testing.assert_close(shuffled, straight[order], rtol=1e-9, atol=1e-12)


def check_identical(case: WeigherCase) -> None:
    """Clients with equal updates and equal counts get equal weights."""
    updates = torch.randn(1, SIZE, generator=torch.Generator().manual_seed(3)).repeat(CLIENTS, 1)
    weights = weigh(case.rule, updates, torch.full((CLIENTS,), 7.0, dtype=torch.float64)).weights
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / CLIENTS))


def check_one_client(case: WeigherCase) -> None:
    updates, counts = draw(4, clients=1)
    torch.testing.assert_close(weigh(case.rule, updates, counts).weights, torch.ones(1, dtype=torch.float64))


def check_zero_updates(case: WeigherCase) -> None:
    """Finite weights that sum to 1 if all updates, or one of them, are 0."""
    updates, counts = draw(5)
    for given in (torch.zeros_like(updates), updates.index_fill(0, torch.tensor([0]), 0.0)):
        weights = weigh(case.rule, given, counts).weights
        assert torch.isfinite(weights).all()
        torch.testing.assert_close(weights.sum(), torch.tensor(1.0, dtype=torch.float64))


def check_dtype(case: WeigherCase) -> None:
    """Float32 and float64 updates give the same weights, up to float32's precision."""
    updates, counts = draw(6)
    narrow, wide = (
        weigh(case.rule, updates, counts).weights,
        weigh(case.rule, updates.double(), counts).weights,
    )
    torch.testing.assert_close(narrow, wide, rtol=1e-5, atol=1e-7)


def check_purity(case: WeigherCase) -> None:
    """Inputs, settings and the old state are not touched; the same call gives the same bits."""
    updates, counts = draw(7)
    kept_updates, kept_counts, kept_rule = updates.clone(), counts.clone(), repr(case.rule)
    state = weigh(case.rule, updates, counts).state
    kept_state = copy.deepcopy(dict(state))
    first = weigh(case.rule, updates, counts, state, round=2)
    second = weigh(case.rule, updates, counts, state, round=2)
    assert torch.equal(first.weights, second.weights)
    assert torch.equal(updates, kept_updates)
    assert torch.equal(counts, kept_counts)
    assert repr(case.rule) == kept_rule
    assert state.keys() == kept_state.keys()
    assert all(torch.equal(state[key], kept_state[key]) for key in state)


def check_state(case: WeigherCase) -> None:
    """State is named tensors, and a client may be absent from a round."""
    updates, counts = draw(8)
    state = case.rule.init()
    for round, present in enumerate(([0, 1, 2, 3, 4, 5], [1, 3], [0, 1, 2, 3, 4, 5]), start=1):
        names = tuple(f"client-{position}" for position in present)
        info = RoundInfo(round, names, counts[present])
        weighed = case.rule.weigh(Geometry(updates[present]), info, state)
        state = weighed.state
        assert weighed.weights.shape == (len(present),)
        assert all(isinstance(key, str) and isinstance(value, Tensor) for key, value in state.items())


def check_memory(case: WeigherCase) -> None:
    """What a rule returns does not share memory with the updates, which the next round overwrites."""
    updates, counts = draw(10)
    weighed = weigh(case.rule, updates, counts)
    found = [weighed.weights, *weighed.state.values(), *weighed.evidence.values()]
    kept = [value.clone() for value in found]
    updates.fill_(float("nan"))
    assert all(torch.equal(value, was) for value, was in zip(found, kept, strict=True))


def check_offers(case: WeigherCase) -> None:
    """A rule sends exactly the vectors that `offers` names."""
    updates, counts = draw(9)
    state = weigh(case.rule, updates, counts).state
    assert case.rule.offer(state).keys() == case.rule.offers


PROMISES = [check for name, check in sorted(globals().items()) if name.startswith("check_")]
