"""Adapters travel, padded to one rank; a model of any smaller rank computes the same function."""

from typing import Any

import pytest
import torch
from lora_models import LoraLinear, network
from torch import Tensor, nn

from steelyard.errors import InputError
from steelyard.layout import tensors_of
from steelyard.sharing import Adapter
from steelyard.types import Message

FIRST, SECOND = "lora_A.default.weight", "lora_B.default.weight"


def read(model: nn.Module, sharing: Adapter) -> Message:
    return sharing.read(tensors_of(model), sharing.layout(model))


def write(model: nn.Module, sharing: Adapter, message: Message) -> nn.Module:
    sharing.write(tensors_of(model), sharing.layout(model), message, {})
    return model


def random_message(model: nn.Module, sharing: Adapter, seed: int = 3) -> Message:
    size = sharing.layout(model).size
    return Message(torch.randn(size, generator=torch.Generator().manual_seed(seed)))


def test_factors_and_what_else_is_trained_travel() -> None:
    layout = Adapter().layout(network(2))
    shapes = {entry.name: tuple(entry.shape) for entry in layout.entries}
    expected = {
        f"0.{FIRST}": (2, 6), f"0.{SECOND}": (8, 2),
        "2.base_layer.bias": (3,), f"2.{FIRST}": (2, 8), f"2.{SECOND}": (3, 2),
    }  # fmt: skip
    assert shapes == expected
    assert [(pair.a.name, pair.b.name) for pair in layout.pairs] == [
        (f"{place}.{FIRST}", f"{place}.{SECOND}") for place in (0, 2)
    ]
    assert layout.size == layout.num_parameters == sum(torch.Size(shape).numel() for shape in shapes.values())


def test_the_rank_that_travels_is_at_most_that_of_the_weight() -> None:
    layout = Adapter(rank=5).layout(network(2))
    assert [tuple(pair.a.shape) for pair in layout.pairs] == [(5, 6), (3, 8)]
    assert [tuple(pair.b.shape) for pair in layout.pairs] == [(8, 5), (3, 3)]


def test_the_product_of_what_travels_is_the_change_of_the_weight() -> None:
    for rank, alpha in ((2, 4.0), (3, 1.0)):
        model = network(rank, alpha)
        nn.init.normal_(model[0].lora_B["default"].weight)
        sharing = Adapter(rank=5)
        a, b = sharing.layout(model).pairs[0].split(read(model, sharing).mean)
        layer = model[0]
        change = alpha / rank * layer.lora_B["default"].weight @ layer.lora_A["default"].weight
        torch.testing.assert_close(b @ a, change)


@pytest.mark.parametrize("rank", [1, 3, 5])
@pytest.mark.parametrize("alpha", [1.0, 8.0])
def test_models_of_every_rank_compute_the_same_function(rank: int, alpha: float) -> None:
    sharing, inputs = Adapter(rank=6), torch.randn(10, 6)
    message = random_message(network(6), sharing)
    expected = write(network(6), sharing, message)(inputs)
    model = network(rank, alpha, seed=5)
    layout = sharing.layout(model)
    for _ in range(2):  # again: nothing is added twice
        sharing.write(tensors_of(model), layout, message, {})
        torch.testing.assert_close(model(inputs), expected, rtol=1e-4, atol=1e-4)
    sharing.write(tensors_of(model), layout, message.map(torch.zeros_like), {})
    initial = network(1)[0].base_layer.weight
    assert torch.equal(model[0].base_layer.weight, initial), "the frozen weight comes back"


def test_a_client_of_a_smaller_rank_changes_only_what_it_holds() -> None:
    sharing, model = Adapter(rank=6), network(2)
    message, layout = random_message(network(6), sharing), sharing.layout(model)
    write(model, sharing, message)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 1.0
    change = sharing.read_trained(tensors_of(model), layout, message).mean - message.mean
    for (a, b), scaling in zip((pair.split(change) for pair in layout.pairs), (2.0, 2.0), strict=True):
        torch.testing.assert_close(a[:2], torch.ones_like(a[:2]))
        torch.testing.assert_close(b[:, :2], scaling * torch.ones_like(b[:, :2]))
        assert not bool(a[2:].any())
        assert not bool(b[:, 2:].any())


def test_a_model_that_is_not_trained_reads_back_what_came_down() -> None:
    for rank, sharing in ((2, Adapter()), (2, Adapter(rank=5))):
        model = network(rank)
        message = random_message(model, sharing)
        write(model, sharing, message)
        found = sharing.read_trained(tensors_of(model), sharing.layout(model), message)
        torch.testing.assert_close(found.mean, message.mean)


@pytest.mark.parametrize(
    ("model", "sharing", "match"),
    [
        (nn.Linear(2, 2), Adapter(), "has no adapter"),
        (network(4), Adapter(rank=3), "has rank 4, but only rank 3"),
    ],
)
def test_models_that_do_not_fit_are_refused(model: nn.Module, sharing: Adapter, match: str) -> None:
    with pytest.raises(InputError, match=match):
        sharing.layout(model)


def test_a_rank_below_one_is_refused() -> None:
    with pytest.raises(InputError, match="rank"):
        Adapter(rank=0)


def test_factors_that_do_not_belong_together_are_refused() -> None:
    model = network(2)
    model[0].lora_B["default"] = nn.Linear(3, 8, bias=False)
    with pytest.raises(InputError, match=r"shapes \(2, 6\) and \(8, 3\)"):
        Adapter().layout(model)


def test_a_frozen_weight_that_cannot_hold_the_rest_is_refused_by_name() -> None:
    model = network(2)
    model[2].base_layer.weight.requires_grad_(True)
    with pytest.raises(InputError, match=r"'2.lora_A.*give all models the same rank"):
        Adapter(rank=3).layout(model)
    Adapter().layout(model)


def test_an_adapter_with_one_frozen_factor_is_no_pair() -> None:
    model = network(2)
    model[0].lora_A.requires_grad_(False)
    layout = Adapter().layout(model)
    assert [pair.a.name for pair in layout.pairs] == [f"2.{FIRST}"]
    assert f"0.{SECOND}" in [entry.name for entry in layout.entries]


def test_factors_that_are_parameters_of_the_layer_itself_are_found() -> None:
    class Own(nn.Linear):
        """As in loralib."""

        def __init__(self) -> None:
            super().__init__(4, 3)
            self.weight.requires_grad_(False)
            self.lora_A, self.lora_B = nn.Parameter(torch.randn(2, 4)), nn.Parameter(torch.randn(3, 2))
            self.scaling = 0.5

        def forward(self, inputs: Tensor) -> Tensor:
            weight = self.weight + self.scaling * self.lora_B @ self.lora_A
            return nn.functional.linear(inputs, weight, self.bias)

    model, sharing, inputs = Own(), Adapter(rank=3), torch.randn(5, 4)
    expected, message = model(inputs), read(model, sharing)
    a, b = sharing.layout(model).pairs[0].split(message.mean)
    torch.testing.assert_close(b @ a, 0.5 * model.lora_B @ model.lora_A)
    torch.testing.assert_close(write(model, sharing, message)(inputs), expected)


def peft_model(model: nn.Module, **settings: Any) -> Any:
    peft = pytest.importorskip("peft")
    return peft.get_peft_model(model, peft.LoraConfig(init_lora_weights=False, **settings))


class Mixed(nn.Module):
    """An embedding, a convolution and linear layers, all with adapters of PEFT."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.conv = nn.Embedding(7, 6), nn.Conv2d(1, 5, 3)
        self.hidden, self.head = nn.Linear(20, 9), nn.Linear(9, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        features = self.conv(self.embed(tokens).unsqueeze(1)).amax(dim=2).flatten(1)
        outputs: Tensor = self.head(self.hidden(features).tanh())
        return outputs


def test_adapters_of_peft_in_every_kind_of_layer_move_between_ranks() -> None:
    names, sharing, tokens = ["embed", "conv", "hidden"], Adapter(rank=4), torch.randint(7, (3, 5))
    settings: dict[str, Any] = {"target_modules": names, "modules_to_save": ["head"]}
    full = peft_model(Mixed(), r=4, lora_alpha=2, **settings).eval()
    message, layout = read(full, sharing), sharing.layout(full)
    assert len(layout.pairs) == 3
    assert any("head.modules_to_save" in entry.name for entry in layout.entries)
    small = peft_model(Mixed(), r=2, lora_alpha=6, use_rslora=True, **settings).eval()
    assert not torch.allclose(small(tokens), full(tokens))
    write(small, sharing, message)
    torch.testing.assert_close(small(tokens), full(tokens), rtol=1e-4, atol=1e-5)


def test_the_transposed_weights_of_gpt2_move_between_ranks() -> None:
    transformers = pytest.importorskip("transformers")

    def gpt(rank: int) -> Any:
        torch.manual_seed(0)
        config = transformers.GPT2Config(
            vocab_size=11, n_positions=8, n_embd=12, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
        )
        model = transformers.GPT2LMHeadModel(config)
        return peft_model(model, r=rank, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True).eval()

    sharing, tokens = Adapter(rank=6), torch.randint(11, (2, 8))
    full, small = gpt(6), gpt(2)
    write(small, sharing, read(full, sharing))
    torch.testing.assert_close(small(tokens).logits, full(tokens).logits, rtol=1e-4, atol=1e-5)


def test_a_tied_weight_is_not_changed_behind_the_back_of_the_other_layer() -> None:
    model = nn.Sequential(LoraLinear(nn.Linear(4, 4), 2, 1.0), nn.Linear(4, 4, bias=False))
    model[1].weight = model[0].base_layer.weight
    with pytest.raises(InputError, match="of its own"):
        Adapter(rank=3).layout(model)
