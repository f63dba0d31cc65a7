"""Every weighing rule goes through the same table of promises."""

from collections.abc import Callable

import pytest
from cases import WEIGHERS, WeigherCase
from promises import PROMISES

from steelyard import registry

CASES = [pytest.param(case, id=repr(case.rule)) for cases in WEIGHERS.values() for case in cases]


def test_every_rule_has_a_row() -> None:
    assert set(WEIGHERS) == set(registry.names("rules"))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("check", PROMISES, ids=lambda check: check.__name__.removeprefix("check_"))
def test_weighing_rule_keeps(check: Callable[[WeigherCase], None], case: WeigherCase) -> None:
    check(case)
