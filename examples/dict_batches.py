"""A BERT of transformers, whose batches are dicts: which module of Python do sixteen words come from?

python examples/dict_batches.py
"""

import argparse
import inspect
import re
import statistics
import tarfile
from collections import Counter

import torch
import transformers

import steelyard as sy

MODULES, LENGTH = (argparse, statistics, tarfile), 16
texts = [re.findall(r"[a-z]{2,}", inspect.getsource(module).lower()) for module in MODULES]
common = Counter(word for text in texts for word in text).most_common(500)
number_of = {word: number for number, (word, _) in enumerate(common, 2)}  # 0 is no word, 1 a rare one


def batch(texts: list[list[str]]) -> dict[str, torch.Tensor]:
    """What a tokeniser returns: tokens [N, 16], 1 where there is a token, and the label [N]."""
    pieces = [
        ([number_of.get(word, 1) for word in text[start : start + LENGTH]], label)
        for label, text in enumerate(texts)
        for start in range(0, len(text), LENGTH)
    ]
    tokens = torch.tensor([numbers + [0] * (LENGTH - len(numbers)) for numbers, _ in pieces])
    labels = torch.tensor([label for _, label in pieces])
    return {"input_ids": tokens, "attention_mask": (tokens > 0).long(), "labels": labels}


def part(start: float, stop: float) -> dict[str, torch.Tensor]:
    """The words of each text between two shares of its length."""
    return batch([text[int(start * len(text)) : int(stop * len(text))] for text in texts])


torch.manual_seed(0)  # for the initial weights; all other randomness comes from `seed`
config = transformers.BertConfig(
    vocab_size=len(number_of) + 2,
    hidden_size=48,
    num_hidden_layers=1,
    num_attention_heads=4,
    intermediate_size=96,
    max_position_embeddings=LENGTH,
    num_labels=len(MODULES),
)
federation = sy.Federation(
    {"lima": part(0, 0.2), "oslo": part(0.2, 0.4), "turin": part(0.4, 0.6), "york": part(0.6, 0.8)},
    transformers.BertForSequenceClassification(config),  # its own loss is used, and its logits are scored
    sy.Algorithm(training={"optimizer": "adamw", "lr": 3e-3, "options": {"betas": (0.9, 0.98)}}),
    test=part(0.8, 1),  # words of the same modules that nobody trained on
    rounds=6,
)
result = federation.run()

for row in result.history:
    print(f"round {row['round']}  accuracy {row['accuracy']:.3f}  nll {row['nll']:.3f}")
print(f"test accuracy {result.accuracy:.3f} on {len(part(0.8, 1)['labels'])} pieces of text")
