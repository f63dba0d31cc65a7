"""Flower's own FedAvg with the model, data and steps of steelyard's side, as a Flower user would write it."""

import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from sklearn.datasets import load_digits
from torch import nn

SITES, BATCH, LR = 3, 32, 0.1
client, server = ClientApp(), ServerApp()


def make_model(hidden: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def data_of(context: Context) -> tuple[torch.Tensor, torch.Tensor]:
    inputs, labels = load_digits(return_X_y=True)
    mine = slice(int(context.node_config["site"]), None, SITES)
    return torch.tensor(inputs[mine] / 16, dtype=torch.float32), torch.tensor(labels[mine])


def loaded(message: Message, context: Context) -> nn.Module:
    torch.set_num_threads(1)
    model = make_model(int(context.run_config["hidden"]))
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return model


@client.train()
def train(message: Message, context: Context) -> Message:
    model, (inputs, labels) = loaded(message, context), data_of(context)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    total = 0.0
    for step in range(int(context.run_config["steps"])):
        picked = torch.arange(step * BATCH, (step + 1) * BATCH) % len(inputs)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs[picked]), labels[picked])
        loss.backward()
        optimizer.step()
        total += float(loss.detach())
    metrics = MetricRecord({"train_loss": total, "num-examples": len(inputs)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)


@client.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    model, (inputs, labels) = loaded(message, context), data_of(context)
    with torch.inference_mode():
        right = float((model(inputs).argmax(1) == labels).float().mean())
    return Message(
        RecordDict({"metrics": MetricRecord({"accuracy": right, "num-examples": len(inputs)})}),
        reply_to=message,
    )


@server.main()
def main(grid: Grid, context: Context) -> None:
    config, times = context.run_config, [time.time()]
    strategy = FedAvg(
        fraction_evaluate=1.0 if config["evaluate"] else 0.0,
        min_train_nodes=SITES,
        min_available_nodes=SITES,
        min_evaluate_nodes=SITES if config["evaluate"] else 0,
    )

    def note(round: int, arrays: ArrayRecord) -> None:
        """Called by Flower before the first round, and after the training of each."""
        times.append(time.time())
        Path(str(config["times"])).write_text(json.dumps(times))

    initial = ArrayRecord(make_model(int(config["hidden"])).state_dict())
    strategy.start(grid, initial, num_rounds=int(config["rounds"]), evaluate_fn=note)
