"""Every attack through one table, and each against its formula written naively."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch import Tensor

from steelyard import components
from steelyard.attacks import (
    ALittleIsEnough,
    Attack,
    Copies,
    ExtraTensor,
    Gaussian,
    InflatedCount,
    InnerProduct,
    LabelFlip,
    MissingTensor,
    NonFinite,
    OnOff,
    Oversized,
    RandomLabels,
    Scaled,
    SignFlip,
    Tail,
    VarianceDeflation,
    WrongDtype,
    WrongShape,
)
from steelyard.attacks.base import Scene
from steelyard.attacks.colluding import largest_z
from steelyard.errors import InputError
from steelyard.server.reply_screening import screen_replies
from steelyard.types import Message, Reply

SIZE = 30


@dataclass(frozen=True)
class Case:
    attack: Attack
    naive: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    """(honest, own) -> the update that it sends, if it is not random."""
    malformed: bool = False


def own_update(honest: np.ndarray, own: np.ndarray) -> np.ndarray:
    return own


CASES = [
    Case(Gaussian(2.0)),
    Case(SignFlip(2.0), lambda honest, own: -2.0 * own),
    Case(Scaled(5.0), lambda honest, own: 5.0 * own),
    Case(ALittleIsEnough(1.5), lambda honest, own: honest.mean(0) - 1.5 * honest.std(0)),
    Case(ALittleIsEnough()),
    Case(InnerProduct(0.3), lambda honest, own: -0.3 * honest.mean(0)),
    Case(Copies()),
    Case(Oversized(7.0), lambda honest, own: 7.0 * honest.mean(0)),
    Case(LabelFlip(), own_update),
    Case(RandomLabels(), own_update),
    Case(OnOff(start=1), lambda honest, own: -own),
    Case(OnOff(start=2), own_update),
    Case(InflatedCount(), lambda honest, own: -own),
    Case(VarianceDeflation(), lambda honest, own: -own),
    Case(Tail(SignFlip(), size=2), lambda honest, own: np.concatenate([own[:-2], -own[-2:]])),
    Case(NonFinite(), malformed=True),
    Case(WrongShape(), malformed=True),
    Case(WrongDtype(), malformed=True),
    Case(MissingTensor(), malformed=True),
    Case(ExtraTensor(), malformed=True),
]
each_case = pytest.mark.parametrize("case", CASES, ids=lambda case: str(case.attack))
well_formed = pytest.mark.parametrize(
    "case", [case for case in CASES if not case.malformed], ids=lambda case: str(case.attack)
)


def draw(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, SIZE, generator=torch.Generator().manual_seed(seed)) + 0.5


def reply_with(mean: Tensor, variance: Tensor | None = None) -> Reply:
    return Reply("oslo", Message(mean, variance), 20, {"loss": 0.5})


def sent(
    attack: Attack, honest: Tensor, own: Tensor, variance: Tensor | None = None, seed: int = 3, round: int = 1
) -> Reply:
    scene = Scene(honest, 2, round)
    return attack.reply(scene, reply_with(own, variance), torch.Generator().manual_seed(seed))


def test_every_attack_has_a_row() -> None:
    assert {type(case.attack) for case in CASES} == set(components.names("attacks").values())


@well_formed
@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_what_is_sent_is_finite_and_of_the_right_kind(case: Case, count: int) -> None:
    own = draw(1, seed=1)[0]
    reply = sent(case.attack, draw(count), own)
    assert reply.client == "oslo"
    assert (reply.message.mean.shape, reply.message.mean.dtype) == (own.shape, own.dtype)
    assert reply.message.mean.isfinite().all()
    accepted, _ = screen_replies({"oslo": reply}, Message(own), 10_000_000)
    assert accepted == [reply]


@each_case
def test_attacks_change_nothing_that_they_are_given_and_repeat_themselves(case: Case) -> None:
    honest, own, variance, labels = draw(5), draw(1, seed=1)[0], torch.ones(SIZE), torch.arange(10) % 4
    kept = [tensor.clone() for tensor in (honest, own, variance, labels)]
    first, second = (sent(case.attack, honest, own, variance) for _ in range(2))
    for one, other in zip(first.message, second.message, strict=True):
        assert one is other is None or torch.equal(one.nan_to_num(), other.nan_to_num())
    assert replace(first, message=own) == replace(second, message=own)
    poisoned = [case.attack.poison(labels, 4, torch.Generator().manual_seed(1)) for _ in range(2)]
    assert torch.equal(*poisoned)
    assert (poisoned[0].dtype, poisoned[0].shape) == (labels.dtype, labels.shape)
    assert torch.equal(poisoned[0], labels) != case.attack.poisons
    assert all(map(torch.equal, (honest, own, variance, labels), kept))


@pytest.mark.parametrize("case", [case for case in CASES if case.naive], ids=lambda case: str(case.attack))
def test_the_update_is_that_of_the_formula(case: Case) -> None:
    honest, own = draw(7), draw(1, seed=1)[0]
    assert case.naive is not None
    wanted = case.naive(honest.double().numpy(), own.double().numpy())
    np.testing.assert_allclose(sent(case.attack, honest, own).message.mean.numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize("with_variance", [False, True])
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.malformed], ids=lambda case: str(case.attack)
)
def test_malformed_replies_are_rejected(case: Case, with_variance: bool) -> None:
    own, variance = draw(1)[0], torch.ones(SIZE) if with_variance else None
    like = Message(own, variance)
    bad = sent(case.attack, draw(3), own, variance)
    accepted, rejected = screen_replies({"oslo": bad}, like, 100)
    assert not accepted
    assert rejected["oslo"].startswith("sent ")
    assert screen_replies({"oslo": reply_with(own, variance)}, like, 100)[0]


def test_gaussian_noise_has_its_scale() -> None:
    noise = sent(Gaussian(3.0), draw(2), torch.zeros(20_000)).message.mean
    assert float(noise.mean()) == pytest.approx(0.0, abs=0.1)
    assert float(noise.std()) == pytest.approx(3.0, rel=0.02)
    assert not torch.equal(noise, sent(Gaussian(3.0), draw(2), torch.zeros(20_000), seed=4).message.mean)


@pytest.mark.parametrize(
    ("honest", "adversaries", "share"),
    [(26, 24, 24 / 26), (40, 10, 24 / 40), (8, 2, 4 / 8), (4, 6, 0.99), (1, 1, 0.01)],
)
def test_a_little_is_the_quantile_of_the_paper(honest: int, adversaries: int, share: float) -> None:
    assert largest_z(honest, adversaries) == pytest.approx(NormalDist().inv_cdf(share))


def test_a_little_is_enough_takes_the_numbers_of_the_round() -> None:
    honest, own = draw(7), draw(1, seed=1)[0]
    z = largest_z(7, 2)
    assert z != 0
    assert torch.equal(
        sent(ALittleIsEnough(), honest, own).message.mean, sent(ALittleIsEnough(z), honest, own).message.mean
    )


def test_copies_are_nearly_the_same_but_not_quite_and_as_long_as_the_honest() -> None:
    honest, owns = draw(5), draw(2, seed=1)
    one, other = (sent(Copies(), honest, own).message.mean for own in owns)
    assert Copies().colludes
    assert not torch.equal(one, other)
    assert float(torch.cosine_similarity(one, other, dim=0)) > 0.9999
    assert float(one.norm()) == pytest.approx(float(honest.norm(dim=1).median()), rel=0.01)
    assert float(sent(Copies(4.0), honest, owns[0]).message.mean.norm()) == pytest.approx(
        4 * float(honest.norm(dim=1).median()), rel=0.01
    )


def test_labels_are_flipped_or_drawn() -> None:
    labels, random = torch.tensor([0, 1, 2, 3, 3]), torch.Generator().manual_seed(0)
    assert LabelFlip().poison(labels, 4, random).tolist() == [3, 2, 1, 0, 0]
    drawn = RandomLabels().poison(torch.zeros(3000, dtype=torch.int64), 3, random)
    assert (torch.bincount(drawn) > 900).all()
    assert len(torch.bincount(drawn)) == 3


def test_an_attack_comes_and_goes() -> None:
    attack = OnOff(start=3, on=2, off=1)
    own = draw(1)[0]
    active = [
        not torch.equal(sent(attack, draw(2), own, round=round).message.mean, own) for round in range(1, 10)
    ]
    assert active == [False, False, True, True, False, True, True, False, True]


@pytest.mark.parametrize(("factor", "claimed"), [(3.0, 60), (1e9, 10_000_000)])
def test_counts_are_inflated_up_to_the_largest_accepted_claim(factor: float, claimed: int) -> None:
    assert sent(InflatedCount(factor=factor), draw(2), draw(1)[0]).num_examples == claimed


def test_variances_are_deflated() -> None:
    reply = sent(VarianceDeflation(factor=0.5), draw(2), draw(1)[0], torch.full((SIZE,), 4.0))
    assert reply.message.variance is not None
    assert torch.equal(reply.message.variance, torch.full((SIZE,), 2.0))
    assert VarianceDeflation().needs == {"variance"}


def test_only_the_tail_is_attacked() -> None:
    own, variance = draw(1)[0], torch.full((SIZE,), 4.0)
    reply = sent(Tail(VarianceDeflation(SignFlip(), 0.5), size=3), draw(2), own, variance)
    assert torch.equal(reply.message.mean[:-3], own[:-3])
    assert torch.equal(reply.message.mean[-3:], -own[-3:])
    assert reply.message.variance is not None
    assert reply.message.variance.tolist() == [4.0] * (SIZE - 3) + [2.0] * 3


def test_a_wrapper_does_what_is_inside() -> None:
    inside = InflatedCount(LabelFlip())
    assert inside.poisons
    assert torch.equal(inside.poison(torch.tensor([0, 1]), 2, torch.Generator()), torch.tensor([1, 0]))
    assert OnOff(Copies()).colludes
    assert OnOff(VarianceDeflation()).needs == {"variance"}


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: OnOff(start=0), "start must be at least 1"),
        (lambda: OnOff(on=0), "on must be at least 1"),
        (lambda: OnOff(off=-1), "off must be at least 0"),
        (lambda: OnOff(LabelFlip()), "labels are poisoned for the whole run"),
        (lambda: InflatedCount(factor=0.5), "factor"),
        (lambda: VarianceDeflation(factor=0.0), "factor"),
        (lambda: Tail(size=0), "size must be at least 1"),
    ],
)
def test_settings_without_meaning_are_refused(make: Callable[[], Attack], part: str) -> None:
    with pytest.raises(InputError, match=part):
        make()
