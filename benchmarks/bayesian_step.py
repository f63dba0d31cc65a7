"""Time of a training step of hybrid-cnn with its last n = 0 to 3 linear layers Bayesian.

python benchmarks/bayesian_step.py

Images of FashionMNIST's size, Adam, one thread. n = 0 minimises the cross-entropy, the others the negative
ELBO; the last column is n = 3 without the KL term. The steps take turns, and ratios are taken within a turn.
"""

from collections.abc import Callable
from itertools import repeat

import torch
from turns import show

from steelyard.client.learner import descend
from steelyard.client.working_model import working_copy_of
from steelyard.nn.variational import bayesian
from steelyard.nn.zoo import hybrid_cnn
from steelyard.objectives import CrossEntropy, Elbo, Objective
from steelyard.objectives.base import Local
from steelyard.settings import Training
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
    """A function that makes one training step as a client does."""
    model = bayesian(hybrid_cnn(SHAPE, CLASSES), last)
    scratch, sharing = working_copy_of(model, torch.channels_last), Posterior()
    scratch.model.train()
    layout = sharing.layout(model)
    broadcast = Broadcast(1, sharing.read(scratch.tensors, layout))
    bound = objective.bind(Local(scratch.model, scratch.parameters, broadcast, EXAMPLES, layout))
    batch = torch.randn(size, *SHAPE), torch.randint(0, CLASSES, (size,))
    training = Training(optimizer="adam", lr=1e-4)
    steps = descend(bound.loss, repeat(batch), scratch.parameters, training, bound.add_gradient)
    return lambda: next(steps)


if __name__ == "__main__":
    rows = {
        str(size): lambda size=size: [stepper(last, objective, size) for last, objective in COLUMNS.values()]
        for size in BATCHES
    }
    show(__doc__, "batch", list(COLUMNS), rows)
