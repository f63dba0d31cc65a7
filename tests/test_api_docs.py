"""docs/api.md and docs/metrics.md say what the code says now."""

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import steelyard as sy
from steelyard import observers

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def pages() -> Iterator[ModuleType]:
    sys.path.insert(0, str(DOCS))
    try:
        import api

        yield api
    finally:
        sys.path.remove(str(DOCS))
        for name in ("api", "docstrings"):
            sys.modules.pop(name, None)


def test_the_committed_pages_are_what_the_program_writes_now(pages: ModuleType) -> None:
    assert pages.API.read_text("utf-8") == pages.api(), "run `python docs/api.py`"
    assert pages.METRICS.read_text("utf-8") == pages.metrics(), "run `python docs/api.py`"


def test_every_public_name_is_on_the_page_once(pages: ModuleType) -> None:
    listed = [name for names in pages.GROUPS.values() for name in names.split()]
    assert sorted(listed) == sorted([*sy.__all__, *(f"observers.{name}" for name in observers.__all__)])


def test_every_public_name_and_shown_member_has_a_docstring(pages: ModuleType) -> None:
    for name in (name for names in pages.GROUPS.values() for name in names.split()):
        thing = pages.found(name)
        assert thing.__doc__, name
        assert not thing.__doc__.startswith(f"{thing.__name__}("), name  # what a dataclass writes by itself
        for member in pages.MEMBERS.get(name, "").split():
            assert inspect.getdoc(inspect.getattr_static(thing, member)), f"{name}.{member}"


def test_every_argument_of_a_federation_is_described(pages: ModuleType) -> None:
    (section,) = [part for part in pages.api().split("\n### ") if part.startswith("class sy.Federation")]
    described = {line.split("`")[1] for line in section.splitlines() if line.startswith("* `")}
    assert {*inspect.signature(sy.Federation).parameters} <= described
