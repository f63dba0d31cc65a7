"""Memory that worker processes share."""

import os

import torch

from steelyard.engines.buffers import LocalBuffers, SharedBuffers
from steelyard.types import Message


def test_a_process_that_was_forked_writes_into_no_update() -> None:
    """Its views of rows, made before the fork, lead to memory of its own."""
    buffers = SharedBuffers(Message(torch.zeros(5000), torch.ones(5000)), rows=3)
    buffers.up.matrices.map(lambda matrix: matrix.fill_(7.0))
    buffers.write(Message(torch.full((5000,), 2.0), torch.ones(5000)))
    row = buffers.up[1]
    child = os.fork()
    if child == 0:
        try:
            buffers.make_private()
            for tensor in (row.mean, row.variance, buffers.down.mean):
                assert tensor is not None
                tensor.fill_(-1.0)
                assert float(tensor.sum()) == -5000.0
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert all(bool((tensor == 7.0).all()) for tensor in row if tensor is not None)
    assert bool((buffers.down.mean == 2.0).all())


def test_buffers_without_rows_can_be_made_private() -> None:
    buffers = SharedBuffers(Message(torch.zeros(0)), rows=0)
    buffers.make_private()
    assert buffers.up.count == 0


def test_predictions_are_written_into_their_rows_if_they_fit() -> None:
    buffers = SharedBuffers(Message(torch.zeros(1)), rows=0, predictions=(5, 2))
    assert buffers.take(torch.ones(2, 2), slice(3, 8))
    assert torch.equal(buffers.predicted(slice(3, 8)), torch.ones(2, 2))
    assert not buffers.take(torch.ones(2, 3), slice(0, 2))
    assert not buffers.take(torch.ones(2, 2, dtype=torch.float64), slice(0, 2))
    assert not LocalBuffers(Message(torch.zeros(1))).take(torch.ones(2, 2), slice(0, 2))


def test_a_forked_process_writes_no_predictions() -> None:
    buffers = SharedBuffers(Message(torch.zeros(1)), rows=0, predictions=(2000, 2))
    child = os.fork()
    if child == 0:
        try:
            buffers.make_private()
            buffers.predictions.fill_(-1.0)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not bool((buffers.predictions == -1.0).any())
