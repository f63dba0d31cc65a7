"""The rule shown in CONTRIBUTING.md is real: it goes through the same contract as every other rule."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import WeigherCase
from promises import PROMISES

GUIDE = Path(__file__).parents[2] / "CONTRIBUTING.md"


@pytest.fixture(scope="module")
def case() -> WeigherCase:
    rule, reference = re.findall(r"```python\n(.*?)```", GUIDE.read_text("utf-8"), flags=re.DOTALL)
    assert len(rule.splitlines()) <= 28
    scope: dict[str, Any] = {"__name__": "agreement", "np": np, "Array": np.ndarray}
    exec(rule + reference, scope)
    return WeigherCase(scope["Agreement"](), scope["agreement"])


@pytest.mark.parametrize("check", PROMISES, ids=lambda check: check.__name__.removeprefix("check_"))
def test_the_example_rule_keeps(check: Callable[[WeigherCase], None], case: WeigherCase) -> None:
    check(case)
