"""All data sets by name. Each has its own file with a factory and the `SOURCE` that describes it."""

import sys
from collections.abc import Callable
from typing import Any

from steelyard.data.cifar10 import cifar10
from steelyard.data.digit_pixels import digit_pixels
from steelyard.data.digits import digits
from steelyard.data.fashion_mnist import fashion_mnist
from steelyard.data.heterogeneous import digit_domains
from steelyard.data.mnist import mnist
from steelyard.data.mnist_m import mnist_m
from steelyard.data.rendered_digits import rendered_digits
from steelyard.data.shakespeare import shakespeare
from steelyard.data.store import Source
from steelyard.data.synthetic import synthetic_linear
from steelyard.data.tabular import adult, bcd, hcc, ilpd
from steelyard.errors import InputError

__all__ = [
    "adult",
    "bcd",
    "cifar10",
    "digit_domains",
    "digit_pixels",
    "digits",
    "fashion_mnist",
    "hcc",
    "ilpd",
    "mnist",
    "mnist_m",
    "rendered_digits",
    "shakespeare",
    "synthetic_linear",
]


def source_of(factory: Callable[..., Any]) -> Source:
    """The description of a data set, without loading it."""
    source: Source | None = getattr(sys.modules[factory.__module__], "SOURCE", None)
    if source is None:
        raise InputError(f"{factory.__module__} has no SOURCE that describes the data set.")
    return source
