"""Every data set by name: a factory and the `SOURCE` that describes it, in a file of its own."""

import sys
from collections.abc import Callable

from steelyard.data.cifar10 import cifar10
from steelyard.data.dataset import Dataset
from steelyard.data.digits import digits
from steelyard.data.fashion_mnist import fashion_mnist
from steelyard.data.mnist import mnist
from steelyard.data.shakespeare import shakespeare
from steelyard.data.store import Source
from steelyard.data.synthetic import synthetic_linear
from steelyard.errors import InputError

__all__ = ["cifar10", "digits", "fashion_mnist", "mnist", "shakespeare", "synthetic_linear"]


def source_of(factory: Callable[..., Dataset]) -> Source:
    """What is known about a data set without loading it."""
    source: Source | None = getattr(sys.modules[factory.__module__], "SOURCE", None)
    if source is None:
        raise InputError(f"{factory.__module__} does not say where its data comes from: it has no SOURCE.")
    return source
