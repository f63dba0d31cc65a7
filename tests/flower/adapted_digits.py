"""A model for digits with LoRA adapters, as a spec names it."""

import torch
from torch import Tensor, nn


class Adapted(nn.Module):
    """A frozen linear layer with an adapter of rank 2."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.base_layer = nn.Linear(inputs, outputs).requires_grad_(False)
        self.lora_A, self.lora_B = nn.Linear(inputs, 2, bias=False), nn.Linear(2, outputs, bias=False)
        nn.init.zeros_(self.lora_B.weight)
        self.scaling = 0.3

    def forward(self, images: Tensor) -> Tensor:
        rows = images.flatten(1)
        outputs: Tensor = self.base_layer(rows) + self.scaling * self.lora_B(self.lora_A(rows))
        return outputs


def adapted(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Adapted(torch.Size(input_shape).numel(), num_classes)
