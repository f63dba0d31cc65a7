"""Data sets, partitions, shifts, and the clients that hold the examples."""

from steelyard.data.clients import Client, Population, as_clients
from steelyard.data.dataset import Dataset
from steelyard.data.dealing import deal
from steelyard.data.examples import AnyExamples, Examples, examples

__all__ = ["AnyExamples", "Client", "Dataset", "Examples", "Population", "as_clients", "deal", "examples"]
