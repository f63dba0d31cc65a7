"""One weighing rule in your own training loop: tensors in, weights and evidence out.

Four clients of unequal size; the last one reverses its update.

python examples/own_loop.py
"""

import copy

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import steelyard as sy

images, labels = load_digits(return_X_y=True)
x, y = torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(labels)
order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
test, *clients = torch.split(order, [300, 700, 400, 250, 147])

torch.set_num_threads(1)  # faster for such small tensors
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def train(start: nn.Module, rows: torch.Tensor) -> torch.Tensor:
    """Local training of a client, here ten steps of SGD; returns the flat parameters."""
    local = copy.deepcopy(start)
    optimizer = torch.optim.SGD(local.parameters(), lr=0.5)
    for _ in range(10):
        optimizer.zero_grad()
        nn.functional.cross_entropy(local(x[rows]), y[rows]).backward()
        optimizer.step()
    return parameters_to_vector(local.parameters()).detach()


state = None
for number in range(1, 16):
    before = parameters_to_vector(model.parameters()).detach()
    updates = torch.stack([train(model, rows) - before for rows in clients])
    updates[-1] *= -1

    counts = [len(rows) for rows in clients]
    weighed = sy.weigh(updates, rule="majority", num_examples=counts, round=number, state=state)
    merged = sy.combine(updates, weighed, rule="mean")

    state = weighed.state  # what the rule remembers for the next round
    vector_to_parameters(before + merged.mean, model.parameters())
    if number % 5 == 0:
        accuracy = (model(x[test]).argmax(1) == y[test]).float().mean()
        shares = ", ".join(f"{weight:.3f}" for weight in weighed.weights)
        print(f"round {number:2d}  accuracy {accuracy:.3f}  weights {shares}")
