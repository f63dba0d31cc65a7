"""Small models and data of every kind, and how a federation finds what they are for."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from steelyard.client.task_fitting import fit_task
from steelyard.objectives import Auto, Objective
from steelyard.task import FittedTask, Task

WHERE = "client 'oslo'"


class Returns(nn.Module):
    """A model that returns what a function makes of its inputs."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.zeros(1)), function

    def forward(self, x: Any) -> Any:
        return self.function(x)


class OfNames(nn.Module):
    """A model whose `forward` takes a dict's entries by name."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.zeros(1)), function

    def forward(self, x: Tensor, labels: Tensor | None = None) -> Any:
        return self.function(x, labels)


def of(*shape: int) -> nn.Module:
    """A model that returns random numbers of this shape for each example."""
    return Returns(lambda x: torch.randn(len(x), *shape, generator=torch.Generator().manual_seed(0)))


def object_of(*shape: int) -> nn.Module:
    """The same under `.logits` of an object."""
    return Returns(lambda x: SimpleNamespace(logits=of(*shape)(x)))


def whole(*shape: int, high: int = 3) -> Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(1))


def fitted(
    model: nn.Module,
    targets: Any,
    inputs: Any = None,
    task: Task | None = None,
    objective: Objective | None = None,
) -> FittedTask:
    """What is found for a batch of two examples, or those given."""
    inputs = torch.zeros(2 if targets is None else len(targets), 4) if inputs is None else inputs
    return fit_task(task or Task(), model, inputs, targets, objective or Auto(), WHERE, targets)


def bert_config(**settings: Any) -> Any:
    from transformers import BertConfig

    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    return BertConfig(**sizes, intermediate_size=8, max_position_embeddings=16, **settings)


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=2, n_positions=16, **ends)
    return GPT2LMHeadModel(config)  # type: ignore[no-any-return]


def tokens(count: int = 2, length: int = 5) -> dict[str, Tensor]:
    return {"input_ids": whole(count, length, high=20), "attention_mask": torch.ones(count, length)}
