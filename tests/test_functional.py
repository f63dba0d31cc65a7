"""`weigh` and `combine`: the forms of input they take, what they return, and what they refuse."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from functional_rules import Spy, Widest
from steelyard import combine, weigh
from steelyard.combining import Mean
from steelyard.errors import InputError
from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing import Samples, Uniform, Weigher
from steelyard.weighing.geometry import Geometry

ROWS = [[0.0, 0.0, 4.0], [4.0, 8.0, 0.0]]

FORMS = {
    "lists": ROWS,
    "tuples": tuple(map(tuple, ROWS)),
    "integers": [[0, 0, 4], [4, 8, 0]],
    "array": np.array(ROWS),
    "integer array": np.array(ROWS, dtype=np.int32),
    "tensor": torch.tensor(ROWS),
    "integer tensor": torch.tensor(ROWS, dtype=torch.int64),
    "tensor with gradient": torch.tensor(ROWS, requires_grad=True),
    "list of arrays": [np.array(row) for row in ROWS],
    "list of tensors": [torch.tensor(row) for row in ROWS],
    "list of columns": [torch.tensor(row).view(3, 1) for row in ROWS],
}


@pytest.mark.parametrize("updates", FORMS.values(), ids=FORMS)
def test_weigh_takes_updates_in_every_form(updates: Any) -> None:
    weighed = weigh(updates, Spy())
    assert weighed.weights.tolist() == [0.5, 0.5]
    assert weighed.weights.dtype == torch.float64
    assert weighed.evidence["norm"].tolist() == pytest.approx([4.0, 80**0.5])
    assert not weighed.evidence["norm"].requires_grad


@pytest.mark.parametrize("means", FORMS.values(), ids=FORMS)
def test_combine_takes_means_in_every_form(means: Any) -> None:
    mean = combine(means, [0.25, 0.75]).mean
    assert mean.tolist() == [3.0, 6.0, 1.0]
    assert mean.is_floating_point()
    assert not mean.requires_grad


@pytest.mark.parametrize(
    "weights", [[0.25, 0.75], (0.25, 0.75), np.array([0.25, 0.75]), torch.tensor([0.25, 0.75])]
)
def test_combine_takes_weights_in_every_form(weights: Any) -> None:
    assert combine(ROWS, weights).mean.tolist() == [3.0, 6.0, 1.0]


def test_combine_takes_what_weigh_gives() -> None:
    weighed = weigh(ROWS, num_examples=[10, 30])
    assert combine(np.array(ROWS), weighed.weights).mean.tolist() == [3.0, 6.0, 1.0]


def test_without_weights_all_count_the_same() -> None:
    assert combine(ROWS).mean.tolist() == [2.0, 4.0, 2.0]


def test_double_precision_stays_double() -> None:
    assert combine(np.array(ROWS)).mean.dtype == torch.float64
    assert combine(torch.tensor(ROWS)).mean.dtype == torch.float32


@pytest.mark.parametrize("counts", [[10, 30], np.array([10, 30]), torch.tensor([10.0, 30.0])])
def test_samples_weigh_by_num_examples(counts: Any) -> None:
    assert weigh(ROWS, "samples", num_examples=counts).weights.tolist() == [0.25, 0.75]


def test_without_num_examples_samples_count_the_same() -> None:
    assert weigh(ROWS).weights.tolist() == [0.5, 0.5]


def test_rules_are_objects_or_names() -> None:
    counts = [10, 30]
    for rule in ("uniform", Uniform()):
        assert weigh(ROWS, rule, num_examples=counts).weights.tolist() == [0.5, 0.5]
    for merge in ("mean", Mean()):
        assert combine(ROWS, [0.25, 0.75], merge).mean.tolist() == [3.0, 6.0, 1.0]


def test_settings_are_keywords() -> None:
    rows, counts = torch.ones(3, 2), [10, 10, 1000]
    capped = weigh(rows, "samples", num_examples=counts, cap=2)
    assert capped.weights.tolist() == [0.25, 0.25, 0.5]
    assert torch.equal(weigh(rows, Samples(cap=2), num_examples=counts).weights, capped.weights)


def test_a_rule_is_told_clients_counts_and_round() -> None:
    weighed = weigh(ROWS, Spy(), clients=["oslo", "turin"], num_examples=[3, 4], round=7)
    assert weighed.state["seen"].item() == len("oslo")
    assert weighed.evidence["count"].tolist() == [3.0, 4.0]
    assert weighed.evidence["round"].item() == 7


def test_the_state_goes_from_call_to_call() -> None:
    first = weigh(ROWS, Spy())
    second = weigh(ROWS, Spy(), state=first.state, round=2)
    assert (first.state["seen"].item(), second.state["seen"].item()) == (1.0, 2.0)


def test_variances_reach_the_rule_that_needs_them() -> None:
    combined = combine(ROWS, rule=Widest(), variances=np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    assert combined.variance is not None
    assert combined.variance.tolist() == [3.0, 2.0, 3.0]


BAD_ROWS = {
    "one vector": ([1.0, 2.0], "must be a matrix with a row for each client"),
    "no rows": ([], "must be a matrix"),
    "empty rows": ([[], []], "must be a matrix"),
    "a cube": (np.ones((2, 2, 2)), r"shape \(2, 2, 2\)"),
    "rows that differ": ([[1.0], [1.0, 2.0]], r"differ in length: \[1, 2\]"),
    "a NaN": ([[1.0, 2.0], [1.0, float("nan")]], "row 1 is not finite"),
    "an infinity": ([[float("inf"), 2.0], [1.0, 2.0]], "row 0 is not finite"),
    "a huge number": (torch.tensor([[1.0, 2.0], [-2e30, 2.0]]), r"row 1 is not finite, or beyond 1e\+30"),
    "a huge double": ([[1.0, 2.0], [1e200, 2.0]], "row 1 is not finite"),
}


@pytest.mark.parametrize(("rows", "sentence"), BAD_ROWS.values(), ids=BAD_ROWS)
def test_rows_that_cannot_be_used_are_bad_input(rows: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^updates.*{sentence}"):
        weigh(rows)
    with pytest.raises(InputError, match=f"^means.*{sentence}"):
        combine(rows)


@pytest.mark.parametrize("counts", [[1, 0], [1, -1], [1, float("nan")], [1], [1, 2, 3], [[1, 2]], 3])
def test_num_examples_that_cannot_be_used_are_bad_input(counts: Any) -> None:
    with pytest.raises(InputError, match="num_examples must be"):
        weigh(ROWS, num_examples=counts)


@pytest.mark.parametrize("clients", [["a"], ["a", "b", "c"], []])
def test_names_for_another_number_of_clients_are_bad_input(clients: list[str]) -> None:
    with pytest.raises(InputError, match="clients must be 2 different names"):
        weigh(ROWS, clients=clients)


@pytest.mark.parametrize("weights", [[1.0], [0.5, 0.25, 0.25], [[0.5, 0.5]], 0.5])
def test_weights_of_the_wrong_shape_are_bad_input(weights: Any) -> None:
    with pytest.raises(InputError, match="weights must be 2 finite numbers"):
        combine(ROWS, weights)


def test_variances_that_cannot_be_used_are_bad_input() -> None:
    with pytest.raises(InputError, match="needs variances"):
        combine(ROWS, rule=Widest())
    with pytest.raises(InputError, match=r"variances have shape \(2, 1\), but means have \(2, 3\)"):
        combine(ROWS, rule=Widest(), variances=[[1.0], [1.0]])
    with pytest.raises(InputError, match="variances: row 1 is not finite"):
        combine(ROWS, rule=Widest(), variances=[[1.0] * 3, [float("nan")] * 3])


def test_unknown_rules_and_settings_offer_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'samples'"):
        weigh(ROWS, "sampels")
    with pytest.raises(InputError, match="unknown combining rule 'meen'"):
        combine(ROWS, rule="meen")
    with pytest.raises(InputError, match=r"'samples'.*cap should be"):
        weigh(ROWS, "samples", cap="lots")
    with pytest.raises(InputError, match="unknown setting 'cup'"):
        weigh(ROWS, "samples", cup=3)


def test_a_rule_that_returns_nonsense_is_named() -> None:
    class Broken(Weigher):
        def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
            return Weighed(torch.full((2,), float("nan"), dtype=torch.float64))

    with pytest.raises(InputError, match="weighing rule Broken returned weights"):
        weigh(ROWS, Broken())


def test_inputs_are_not_changed() -> None:
    rows, weights, counts = np.array(ROWS), np.array([0.25, 0.75]), np.array([10, 30])
    state = {"seen": torch.zeros(1)}
    weigh(rows, "samples", num_examples=counts, cap=1)
    weigh(rows, Spy(), num_examples=counts, state=state)
    combine(rows, weights)
    assert rows.tolist() == ROWS
    assert (weights.tolist(), counts.tolist()) == ([0.25, 0.75], [10, 30])
    assert state["seen"].item() == 0


def test_outputs_do_not_share_memory_with_arrays_that_went_in() -> None:
    row, weight = np.array([[1.0, 2.0]]), np.array([1.0])
    mean = combine(row, weight).mean
    row[:] = weight[:] = -1.0
    assert mean.tolist() == [1.0, 2.0]
    counts = np.array([2.0, 6.0])
    weights = weigh(ROWS, num_examples=counts).weights
    counts[:] = 1.0
    assert weights.tolist() == [0.25, 0.75]


def test_read_only_and_reversed_arrays_are_taken() -> None:
    values = np.arange(6.0).reshape(2, 3)
    values.flags.writeable = False
    assert combine(values).mean.tolist() == [1.5, 2.5, 3.5]
    assert combine(values[::-1], [1.0, 0.0]).mean.tolist() == [3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: combine([[1.0], [2.0]], [0.5, float("nan")]),
        lambda: combine([["a"], ["b"]]),
        lambda: weigh([[1.0], [2.0]], Samples(), cap=3.0),
        lambda: weigh([[1.0], [2.0]], Samples),
        lambda: weigh([[1.0], [2.0]], clients=["a", "a"]),
    ],
    ids=["NaN weights", "strings", "settings beside an object", "a class", "one name twice"],
)
def test_what_makes_no_sense_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        call()


def test_numbers_up_to_the_bound_are_taken_though_their_norm_is_beyond_it() -> None:
    rows = torch.full((3, 4), 9e29)
    assert weigh(rows, "uniform").weights.tolist() == pytest.approx([1 / 3] * 3)
    assert combine(rows, [1.0, 0.0, 0.0]).mean.tolist() == pytest.approx([9e29] * 4)


def with_giants(scale: float) -> torch.Tensor:
    rows = 1 + 0.1 * torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    rows[1] *= scale
    rows[4] *= -scale
    return rows


@pytest.mark.parametrize("rule", ["samples", "ivar-vb", "majority", "geometric-median", "krum"])
def test_updates_far_longer_than_the_rest_have_no_weight(rule: str) -> None:
    honest = [0, 2, 3, 5]
    weighed = weigh(with_giants(1e20), rule, clients=list("abcdef"))
    assert weighed.weights[[1, 4]].tolist() == [0, 0]
    assert weighed.evidence["too_long"].tolist() == [0, 1, 0, 0, 1, 0]
    alone = weigh(with_giants(1e20)[honest], rule, clients=list("acdf"))
    torch.testing.assert_close(weighed.weights[honest], alone.weights)
    assert weighed.state.keys() == alone.state.keys(), "nothing is remembered of clients that were left out"
    assert float(combine(with_giants(1e20), weighed).mean.abs().max()) < 2


def test_giants_count_only_by_asking() -> None:
    assert "too_long" not in weigh(with_giants(50.0), "uniform").evidence
    assert float(
        weigh(with_giants(1e20), "uniform", max_norm_ratio=float("inf")).weights[1]
    ) == pytest.approx(1 / 6)


def test_combine_applies_the_factors_of_a_rule_that_shortens_updates() -> None:
    """Four clients point against the momentum; the fifth has all the weight and is very long."""
    rows = torch.cat([torch.tensor([[-0.99, 0.141]]).repeat(4, 1), torch.tensor([[60.0, 0.0]])])
    state = {"momentum": torch.tensor([1.0, 0.0], dtype=torch.float64)}
    weighed = weigh(rows, "consensus", bound=1.0, state=state)
    assert float(combine(rows, weighed).mean.norm()) == pytest.approx(1, abs=0.01)
    assert float(combine(rows, weighed.weights).mean.norm()) == pytest.approx(60)
