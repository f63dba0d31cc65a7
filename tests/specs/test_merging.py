"""Merging the sources of a spec: nothing that is given changes, and nothing is lost."""

import copy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steelyard.specs.sources import merge

keys = st.sampled_from(["name", "a", "b", "c"])
values = st.sampled_from(["x", "y", 1, 2, None])
tables = st.recursive(
    st.dictionaries(keys, values, max_size=3),
    lambda inner: st.dictionaries(keys, inner | values, max_size=3),
    max_leaves=6,
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no bad input
@given(tables, tables)
def test_merge_never_changes_what_it_is_given(base: dict[str, Any], over: dict[str, Any]) -> None:
    before = copy.deepcopy((base, over))
    merge(base, over)
    assert (base, over) == before


@given(tables, tables)
def test_merge_keeps_every_key_of_both(base: dict[str, Any], over: dict[str, Any]) -> None:
    assert merge(base, over).keys() == base.keys() | over.keys()
    assert merge(base, {}) == base


@given(tables, tables)
def test_merge_lets_the_plain_values_on_top_win(base: dict[str, Any], over: dict[str, Any]) -> None:
    merged = merge(base, over)
    for key, value in over.items():
        if not isinstance(value, dict) and not isinstance(base.get(key), dict):
            assert merged[key] == value
