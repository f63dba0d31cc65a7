"""Small models with LoRA adapters, written out: the names and attributes are those of PEFT's layers."""

import torch
from torch import Tensor, nn


class LoraLinear(nn.Module):
    """A frozen linear layer with an adapter."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float) -> None:
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        self.lora_A = nn.ModuleDict({"default": nn.Linear(base.in_features, rank, bias=False)})
        self.lora_B = nn.ModuleDict({"default": nn.Linear(rank, base.out_features, bias=False)})
        nn.init.zeros_(self.lora_B["default"].weight)
        self.scaling = {"default": alpha / rank}

    def forward(self, inputs: Tensor) -> Tensor:
        change: Tensor = self.lora_B["default"](self.lora_A["default"](inputs))
        outputs: Tensor = self.base_layer(inputs) + self.scaling["default"] * change
        return outputs


def network(rank: int, alpha: float = 4.0, seed: int = 0) -> nn.Sequential:
    """Two layers with adapters. Frozen weights do not depend on rank and alpha; a bias is trained."""
    torch.manual_seed(0)
    first, second = nn.Linear(6, 8), nn.Linear(8, 3)
    torch.manual_seed(seed)
    model = nn.Sequential(LoraLinear(first, rank, alpha), nn.Tanh(), LoraLinear(second, min(rank, 3), alpha))
    model[2].base_layer.bias.requires_grad_(True)
    return model


NAMES = ("lima", "oslo", "turin", "york")


def clients(names: tuple[str, ...] = NAMES, apart: float = 0.2) -> dict[str, tuple[Tensor, Tensor]]:
    """Data that a linear model fits, shifted from client to client."""
    random = torch.Generator().manual_seed(1)
    rule = torch.randn(6, 3, generator=random)
    found = {}
    for place, name in enumerate(names):
        inputs = torch.randn(40, 6, generator=random) + apart * place
        found[name] = (inputs, (inputs @ rule).argmax(dim=1))
    return found
