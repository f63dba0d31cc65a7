"""Every weighing rule goes through the same table of promises."""

from collections.abc import Callable

import pytest
import torch
from cases import WEIGHERS, WeigherCase
from promises import CLIENTS, PROMISES, agree, draw
from torch import Tensor

from steelyard import components

CASES = [pytest.param(case, id=repr(case.rule)) for cases in WEIGHERS.values() for case in cases]


def test_every_rule_has_a_row() -> None:
    assert set(WEIGHERS) == set(components.names("weighing"))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("check", PROMISES, ids=lambda check: check.__name__.removeprefix("check_"))
def test_weighing_rule_keeps(check: Callable[[WeigherCase], None], case: WeigherCase) -> None:
    check(case)


def inputs() -> dict[str, tuple[Tensor, Tensor]]:
    """Rounds that try a rule's numerics."""
    rows, counts = draw(11)
    line = torch.linspace(-1, 2, CLIENTS).unsqueeze(1) * rows[0]
    return {
        "huge common component": ((rows + 1e4 * draw(12)[0][0]), counts),
        "collinear": (line + rows[1], counts),
        "identical": (rows[:1].repeat(CLIENTS, 1), counts),
        "one outlier": (torch.cat([rows[:-1], 1e4 * rows[-1:]]), counts),
        "two alike": (torch.cat([rows[:-1], rows[:1]]), counts),
        "one client": draw(13, clients=1),
        "two clients": draw(14, clients=2),
        "three clients": draw(15, clients=3),
    }


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", inputs())
def test_weighing_rule_agrees_with_its_naive_form_on(name: str, case: WeigherCase) -> None:
    agree(case, *inputs()[name])
