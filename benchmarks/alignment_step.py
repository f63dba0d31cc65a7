"""What does alignment add to a training step? Its forms beside the plain step, on 64 images of MNIST's size.

python benchmarks/alignment_step.py

The steps take turns, and ratios are formed within a turn; one thread.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import repeat

import torch
from torch import nn

from steelyard.layout import flatten, layout_of
from steelyard.learner import descend
from steelyard.nn.zoo import light_cnn, mlp
from steelyard.objectives import Alignment, CrossEntropy, Objective
from steelyard.objectives.base import Local
from steelyard.optimizers import Training
from steelyard.scratch import scratch_like
from steelyard.types import Broadcast, Message

SHAPE, CLASSES, BATCH = (1, 28, 28), 10, 64
MODELS = {"light-cnn": light_cnn(SHAPE, CLASSES), "mlp, 200 hidden": mlp(SHAPE, CLASSES, hidden=200)}
FORMS: dict[str, Objective] = {
    "plain": CrossEntropy(),
    "`update`": Alignment(form="update"),
    "`gradient`": Alignment(form="gradient"),
}


def stepper(model: nn.Module, objective: Objective) -> Callable[[], object]:
    """One training step, as a client makes it."""
    scratch, layout = scratch_like(model), layout_of(model)
    scratch.model.train()
    offers = {"direction": torch.randn(layout.num_parameters)}
    broadcast = Broadcast(2, Message(flatten(scratch.tensors, layout)), offers)
    bound = objective.bind(Local(scratch.model, scratch.parameters, broadcast, BATCH, layout))
    batch = torch.randn(BATCH, *SHAPE), torch.randint(0, CLASSES, (BATCH,))
    training = Training(lr=1e-4, momentum=0.9)
    steps = descend(bound.loss, repeat(batch), scratch.parameters, training, bound.add_gradient)
    return lambda: next(steps)


def milliseconds(step: Callable[[], object], steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        step()
    return 1000 * (time.perf_counter() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--steps", type=int, default=5, help="of each form in a turn")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| model | " + " | ".join(f"{name}, ms" for name in FORMS) + " |")
    print("|---" * (1 + len(FORMS)) + "|")
    for name, model in MODELS.items():
        steps = [stepper(model, objective) for objective in FORMS.values()]
        turns = [[milliseconds(step, chosen.steps) for step in steps] for _ in range(chosen.turns + 2)][2:]
        times = [statistics.median(column) for column in zip(*turns, strict=True)]
        ratios = [statistics.median(turn[place] / turn[0] for turn in turns) for place in range(len(steps))]
        cells = [f"{times[0]:.2f}"]
        cells += [f"{ms:.2f} ({ratio:.2f} ×)" for ms, ratio in zip(times[1:], ratios[1:], strict=True)]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
