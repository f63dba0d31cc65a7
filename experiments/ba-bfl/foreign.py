"""Does a model know what it does not know? FashionMNIST's models look at MNIST."""

from dataclasses import replace

from steelyard.data.fashion_mnist import fashion_mnist
from steelyard.data.mnist import mnist
from steelyard.evaluation import auroc, entropy, predict
from steelyard.experiment import load_model
from steelyard.record import Run


def foreign_auroc(run: Run) -> float:
    """The chance that a digit leaves a model of clothes less certain than a piece of clothing does."""
    model, own = load_model(run), fashion_mnist().test
    foreign = mnist().test
    foreign = replace(foreign, mean=own.mean, std=own.std)  # as the model would see any image
    return auroc(entropy(predict(model, own)), entropy(predict(model, foreign)))
