"""Ten honest clients with 200 to 6,000 MNIST images: local epochs move their models unequally far."""

from collections.abc import Sequence

import torch

import steelyard as sy
from steelyard import components
from steelyard.data.sources import mnist
from steelyard.nn.zoo import logistic
from steelyard.seeds import generator, seeded

SIZES = [200, 292, 426, 621, 906, 1323, 1930, 2817, 4110, 6000]  # in equal ratios
RULES = ("samples", "uniform", "geometric-median", "ivar-vb", "icov-vb", "majority")


def unequal(seeds: Sequence[int], rounds: int, epochs: int) -> dict[str, list[float]]:
    """Test accuracy of each rule for each seed."""
    data = mnist()
    accuracies: dict[str, list[float]] = {rule: [] for rule in RULES}
    for seed in seeds:
        order = torch.randperm(len(data.train), generator=generator(seed, "unequal"))
        parts = order[: sum(SIZES)].split(SIZES)
        clients = [sy.Client(f"party-{place}", data.train.take(rows)) for place, rows in enumerate(parts)]
        for rule in RULES:
            with seeded(seed, "model"):
                model = logistic(data.train.input_shape, data.num_classes)
            algorithm = sy.Algorithm(
                weighing=components.build("weighing", {"name": rule}),
                training=sy.Training(lr=0.05, batch_size=32, epochs=epochs),
            )
            federation = sy.Federation(
                clients, model, algorithm, test=data.test, rounds=rounds, evaluate_every=rounds, seed=seed
            )
            accuracies[rule].append(federation.run().accuracy)
    return accuracies
