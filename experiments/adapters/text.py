"""A character model of Shakespeare without some roles, and these roles as clients that adapt it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import peft
import torch
import transformers
from torch import Tensor, nn

from steelyard.data.shakespeare import FILE, SOURCE, SYMBOLS, encode, speeches
from steelyard.data.store import load

TEST_SHARE = 0.1
Pairs = tuple[Tensor, Tensor]
"""Characters [N, T], and those that follow each of them [N, T]."""


@dataclass(frozen=True)
class Size:
    """How large everything is."""

    width: int = 64
    layers: int = 2
    length: int = 48
    pretraining_steps: int = 1500
    roles: int = 5


def texts(size: Size) -> tuple[str, Mapping[str, str]]:
    """The speech of the roles that the model is first trained on, and of the clients: the longest ones."""
    spoken = speeches(load(SOURCE)[FILE].decode("ascii"))
    order = sorted(spoken, key=lambda role: (-len(spoken[role]), role))
    clients = {role.title(): spoken[role] for role in order[: size.roles]}
    return "".join(spoken[role] for role in order[size.roles :]), clients


def windows(text: str, length: int, stride: int) -> Pairs:
    characters = encode(text)
    rows = characters.unfold(0, length + 1, stride)
    return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()


def split(text: str, size: Size) -> tuple[Pairs, Pairs]:
    """Training and test rows of a role; its last tenth is for the test."""
    cut = len(text) - round(TEST_SHARE * len(text))
    return windows(text[:cut], size.length, size.length // 2), windows(text[cut:], size.length, size.length)


def gpt(size: Size) -> Any:
    config = transformers.GPT2Config(
        vocab_size=len(SYMBOLS), n_positions=size.length, n_embd=size.width, n_layer=size.layers, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, use_cache=False,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config)


def pretrained(text: str, size: Size, seed: int = 0) -> nn.Module:
    """The model after training on a text: the same for all runs."""
    torch.manual_seed(seed)
    model, characters = gpt(size), encode(text)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=size.pretraining_steps)
    places = torch.arange(size.length)
    for _ in range(size.pretraining_steps):
        starts = torch.randint(len(characters) - size.length - 1, (32, 1))
        logits = model(characters[starts + places]).logits
        loss = nn.functional.cross_entropy(logits.movedim(-1, 1), characters[starts + places + 1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def adapted(base: nn.Module, size: Size, rank: int, seed: int) -> Any:
    """The model with LoRA adapters of a rank; α is twice the rank, so that ranks have the same scaling."""
    torch.manual_seed(seed)
    model = gpt(size)
    model.load_state_dict(base.state_dict())
    config = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=["c_attn", "c_proj", "c_fc"], fan_in_fan_out=True
    )
    return peft.get_peft_model(model, config)


def loss_of(model: Any, rows: Pairs) -> float:
    """The mean cross-entropy of the next character, in bits."""
    with torch.inference_mode():
        logits = model.eval()(rows[0]).logits
    return float(nn.functional.cross_entropy(logits.movedim(-1, 1), rows[1])) / math.log(2)
