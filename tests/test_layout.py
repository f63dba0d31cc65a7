"""The flat vector: what is in it, in which order, and that nothing is lost on the way there and back."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from steelyard.errors import InputError
from steelyard.layout import LARGE, flatten, layout_of, load, subtract, tensors_of


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(12, 4))


class Buffered(nn.Module):
    """A parameter, a buffer that is saved and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.register_buffer("saved", torch.tensor([3.0]))
        self.register_buffer("passing", torch.tensor([4.0]), persistent=False)
        self.register_buffer("mask", torch.tensor([True, False]))


def test_parameters_come_first_then_floating_buffers_in_the_order_of_the_model() -> None:
    model = network()
    conv, norm, _, linear = model
    expected: list[Tensor] = [
        conv.weight, conv.bias, norm.weight, norm.bias, linear.weight, linear.bias,
        norm.running_mean, norm.running_var,
    ]  # fmt: skip
    layout = layout_of(model)
    assert torch.equal(
        flatten(tensors_of(model), layout), torch.cat([each.detach().flatten() for each in expected])
    )
    assert layout.num_parameters == 54 + 3 + 3 + 3 + 48 + 4
    assert layout.size == layout.num_parameters + 3 + 3
    assert [entry.name for entry in layout.buffers] == ["1.running_mean", "1.running_var"]


def test_a_vector_written_into_a_model_reads_back_the_same() -> None:
    model = network()
    layout = layout_of(model)
    vector = torch.arange(layout.size, dtype=torch.float32)
    load(tensors_of(model), vector, layout)
    assert torch.equal(flatten(tensors_of(model), layout), vector)
    assert torch.equal(model[0].weight, vector[:54].view(3, 2, 3, 3))
    assert torch.equal(model[1].running_var, vector[-3:])


def test_a_loaded_model_computes_what_the_original_computes() -> None:
    model = network().train()
    inputs = torch.randn(5, 2, 4, 4)
    layout = layout_of(model)
    model(inputs)  # moves the running statistics
    other = network()
    load(tensors_of(other), flatten(tensors_of(model), layout), layout)
    assert torch.equal(other.eval()(inputs), model.eval()(inputs))


def test_the_order_of_channels_in_memory_does_not_matter() -> None:
    model = network()
    layout = layout_of(model)
    vector = torch.randn(layout.size)
    turned = copy.deepcopy(model).to(memory_format=torch.channels_last)
    load(tensors_of(model), vector, layout)
    load(tensors_of(turned), vector, layout)
    assert torch.equal(turned[0].weight, model[0].weight)
    assert torch.equal(flatten(tensors_of(turned), layout), vector)


def test_counters_stay_integers_and_return_to_where_they_began() -> None:
    model = network()
    model[1].num_batches_tracked.fill_(7)
    layout = layout_of(model)
    assert list(layout.constants) == ["1.num_batches_tracked"]
    vector = flatten(tensors_of(model), layout)
    model.train()(torch.randn(5, 2, 4, 4))
    assert model[1].num_batches_tracked == 8
    load(tensors_of(model), vector, layout)
    assert model[1].num_batches_tracked == 7
    assert model[1].num_batches_tracked.dtype == torch.int64


def test_only_what_is_saved_is_shared() -> None:
    model = Buffered()
    layout = layout_of(model)
    assert flatten(tensors_of(model), layout).tolist() == [1, 2, 3]
    model.mask.fill_(True)
    model.passing.fill_(9)
    load(tensors_of(model), torch.zeros(3), layout)
    assert model.mask.tolist() == [True, False]
    assert model.passing.tolist() == [4], "not in the state dict: put back"


def test_tied_parameters_count_once_and_stay_tied() -> None:
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.ReLU(), nn.Linear(3, 3, bias=False))
    model[2].weight = model[0].weight
    layout = layout_of(model)
    assert layout.size == layout.num_parameters == 9
    load(tensors_of(model), torch.arange(9.0), layout)
    assert model[2].weight is model[0].weight
    assert model[2].weight.flatten().tolist() == list(range(9))


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ((torch.float32, torch.float32), torch.float32),
        ((torch.float64, torch.float64), torch.float64),
        ((torch.float32, torch.float64), torch.float64),
        ((torch.float16, torch.bfloat16), torch.float32),
    ],
)
def test_the_vector_is_wide_enough_for_every_tensor(
    dtypes: tuple[torch.dtype, torch.dtype], expected: torch.dtype
) -> None:
    model = nn.Sequential(*(nn.Linear(2, 2, dtype=dtype) for dtype in dtypes))
    before = [parameter.detach().clone() for parameter in model.parameters()]
    layout = layout_of(model)
    vector = flatten(tensors_of(model), layout)
    assert vector.dtype == expected
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    load(tensors_of(model), vector, layout)
    for parameter, old in zip(model.parameters(), before, strict=True):
        assert parameter.dtype == old.dtype
        assert torch.equal(parameter, old)


def test_the_vector_of_a_single_tensor_is_a_copy() -> None:
    model = nn.Linear(3, 1, bias=False)
    vector = flatten(tensors_of(model), layout_of(model))
    vector.zero_()
    assert bool(model.weight.any())


def test_vector_and_model_share_no_memory() -> None:
    model = nn.Linear(3, 1, bias=False)
    layout = layout_of(model)
    vector = flatten(tensors_of(model), layout)
    kept = vector.clone()
    with torch.no_grad():
        model.weight.add_(1)
    assert torch.equal(vector, kept), "flatten copies"
    load(tensors_of(model), vector, layout)
    vector.fill_(9)
    assert torch.equal(model.weight.flatten(), kept), "load copies"
    assert not vector.requires_grad


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(InputError, match="Flatten has no parameters"):
        layout_of(nn.Flatten())


def test_a_complex_parameter_is_refused_by_name() -> None:
    model = nn.Linear(2, 2, dtype=torch.complex64)
    with pytest.raises(InputError, match="'weight' is"):
        layout_of(model)


def mixed(width: int) -> nn.Module:
    """Layers in three dtypes, one of them with channels last."""
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 6, 3).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return nn.Sequential(nn.Linear(width, 3), conv, nn.BatchNorm2d(6), nn.Linear(5, 2).bfloat16())


@pytest.mark.parametrize("width", [7, LARGE])
@pytest.mark.parametrize("double", [False, True])
def test_differences_are_written_into_a_vector_with_the_bits_of_a_subtraction(
    width: int, double: bool
) -> None:
    model = mixed(width)
    if double:
        model[0].double()
    layout = layout_of(model)
    matrix = torch.full((3, layout.size), math.nan, dtype=layout.dtype)
    before = torch.randn(layout.size, dtype=layout.dtype)
    subtract(tensors_of(model), before, layout, matrix[1])
    assert torch.equal(matrix[1], flatten(tensors_of(model), layout) - before)
    assert bool(matrix[[0, 2]].isnan().all()), "other rows are not touched"
