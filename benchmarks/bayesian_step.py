"""What do Bayesian layers add to a training step? hybrid-cnn with its last 0 to 3 linear layers Bayesian.

python benchmarks/bayesian_step.py

On images of FashionMNIST's size, with Adam; n = 0 minimises the cross-entropy, the others the negative ELBO.
The last column is n = 3 without the KL. The steps take turns, ratios are formed within a turn; one thread.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from itertools import repeat

import torch

from steelyard.learner import descend
from steelyard.nn.variational import bayesian
from steelyard.nn.zoo import hybrid_cnn
from steelyard.objectives import CrossEntropy, Elbo, Objective
from steelyard.objectives.base import Local
from steelyard.optimizers import Training
from steelyard.scratch import scratch_like
from steelyard.sharing import Posterior
from steelyard.types import Broadcast

SHAPE, CLASSES, EXAMPLES, BATCHES = (1, 28, 28), 10, 6000, (64, 32)
COLUMNS: dict[str, tuple[int, Objective]] = {
    "n = 0": (0, CrossEntropy()),
    "n = 1": (1, Elbo()),
    "n = 2": (2, Elbo()),
    "n = 3": (3, Elbo()),
    "n = 3, no KL": (3, CrossEntropy()),
}


def stepper(last: int, objective: Objective, size: int) -> Callable[[], object]:
    """One training step, as a client makes it."""
    model = bayesian(hybrid_cnn(SHAPE, CLASSES), last)
    scratch, sharing = scratch_like(model), Posterior()
    scratch.model.train()
    layout = sharing.layout(model)
    broadcast = Broadcast(1, sharing.read(scratch.tensors, layout))
    bound = objective.bind(Local(scratch.model, scratch.parameters, broadcast, EXAMPLES, layout))
    batch = torch.randn(size, *SHAPE), torch.randint(0, CLASSES, (size,))
    training = Training(optimizer="adam", lr=1e-4)
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
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--steps", type=int, default=3, help="of each column in a turn")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| batch | " + " | ".join(f"{name}, ms" for name in COLUMNS) + " |")
    print("|---" * (1 + len(COLUMNS)) + "|")
    for size in BATCHES:
        steps = [stepper(last, objective, size) for last, objective in COLUMNS.values()]
        turns = [[milliseconds(step, chosen.steps) for step in steps] for _ in range(chosen.turns + 2)][2:]
        times = [statistics.median(column) for column in zip(*turns, strict=True)]
        ratios = [statistics.median(turn[place] / turn[0] for turn in turns) for place in range(len(steps))]
        cells = [f"{times[0]:.2f}"]
        cells += [f"{ms:.2f} ({ratio:.2f} ×)" for ms, ratio in zip(times[1:], ratios[1:], strict=True)]
        print(f"| {size} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
