"""Adapt a language model with LoRA (PEFT) at four sites: adapters travel, and are merged as products."""

import torch
import transformers
from peft import LoraConfig, get_peft_model
from torch import Tensor
from torch.nn.functional import cross_entropy

import steelyard as sy

TOKENS, LENGTH = 23, 12
torch.manual_seed(0)


def sequences(steps: list[int], count: int) -> tuple[Tensor, Tensor]:
    """Sequences such as 3, 7, 11, …: tokens [N, T], and the token that follows each of them [N, T]."""
    starts = torch.randint(TOKENS, (count, 1))
    rates = torch.tensor(steps)[torch.randint(len(steps), (count, 1))]
    numbers = (starts + rates * torch.arange(LENGTH + 1)) % TOKENS
    return numbers[:, :-1], numbers[:, 1:]


# A model that is large for this example, trained on sequences that rise by 1, 2 or 3.
config = transformers.GPT2Config(
    vocab_size=TOKENS, n_positions=LENGTH, n_embd=48, n_layer=1, n_head=4, bos_token_id=0, eos_token_id=0
)
model = transformers.GPT2LMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(120):
    tokens, following = sequences([1, 2, 3], 64)
    loss = cross_entropy(model(tokens).logits.movedim(-1, 1), following)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def adapted(rank: int) -> torch.nn.Module:
    """The model with adapters of a rank."""
    settings = {"lora_alpha": 2 * rank, "target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True}
    fresh = transformers.GPT2LMHeadModel(config)
    fresh.load_state_dict(model.state_dict())
    return get_peft_model(fresh, LoraConfig(r=rank, **settings))


# Four sites have sequences that rise faster. Turin has a small computer, and adapters of a smaller rank.
sites = [
    sy.Client("lima", sequences([4, 5], 250)),
    sy.Client("oslo", sequences([5, 6], 250)),
    sy.Client("turin", sequences([4, 6], 250), model=adapted(rank=2)),
    sy.Client("york", sequences([4, 5, 6], 250)),
]
federation = sy.Federation(
    sites,
    adapted(rank=8),
    sy.Algorithm(
        sharing={"name": "adapter", "rank": 8},
        combining="low-rank",
        weighing="majority",
        training={"optimizer": "adam", "lr": 1e-2, "batch_size": 25},
    ),
    test=sequences([4, 5, 6], 300),
    rounds=6,
)
result = federation.run()

for row in result.history:
    print(f"round {row['round']}: accuracy {row['accuracy']:.3f}, error of the rank {row['rank_error']:.3f}")
sent, whole = row["bytes"] / 1e3, row["bytes_of_whole_models"] / 1e3
print(f"a round takes {sent:.0f} kB; with whole models it would take {whole:,.0f} kB")
for verdict in result.verdicts.values():
    print(verdict.text)
result.model.merge_and_unload()  # the whole model, as any other of transformers
