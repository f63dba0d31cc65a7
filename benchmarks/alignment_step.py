"""Time of a training step with the alignment objective, compared with plain cross-entropy.

python benchmarks/alignment_step.py

64 images of MNIST's size, one thread. The steps take turns, and ratios are taken within a turn.
"""

from collections.abc import Callable
from itertools import repeat

import torch
from torch import nn
from turns import show

from steelyard.client.learner import descend
from steelyard.client.working_model import working_copy_of
from steelyard.layout import flatten, layout_of
from steelyard.nn.zoo import light_cnn, mlp
from steelyard.objectives import Alignment, CrossEntropy, Objective
from steelyard.objectives.base import Local
from steelyard.settings import Training
from steelyard.types import Broadcast, Message

SHAPE, CLASSES, BATCH = (1, 28, 28), 10, 64
MODELS = {"light-cnn": light_cnn(SHAPE, CLASSES), "mlp, 200 hidden": mlp(SHAPE, CLASSES, hidden=200)}
FORMS: dict[str, Objective] = {
    "plain": CrossEntropy(),
    "`update`": Alignment(form="update"),
    "`gradient`": Alignment(form="gradient"),
}


def stepper(model: nn.Module, objective: Objective) -> Callable[[], object]:
    """A function that makes one training step as a client does."""
    scratch, layout = working_copy_of(model, torch.channels_last), layout_of(model)
    scratch.model.train()
    offers = {"direction": torch.randn(layout.num_parameters)}
    broadcast = Broadcast(2, Message(flatten(scratch.tensors, layout)), offers)
    bound = objective.bind(Local(scratch.model, scratch.parameters, broadcast, BATCH, layout))
    batch = torch.randn(BATCH, *SHAPE), torch.randint(0, CLASSES, (BATCH,))
    training = Training(lr=1e-4, momentum=0.9)
    steps = descend(bound.loss, repeat(batch), scratch.parameters, training, bound.add_gradient)
    return lambda: next(steps)


if __name__ == "__main__":
    rows = {
        name: lambda model=model: [stepper(model, objective) for objective in FORMS.values()]
        for name, model in MODELS.items()
    }
    show(__doc__, "model", list(FORMS), rows)
