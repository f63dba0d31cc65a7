"""Devices of torch on which models train and predict: which there are here, and what they lack."""

import multiprocessing
import os
import warnings

import torch
from torch import Tensor
from torch.utils._foreach_utils import _get_fused_kernels_supported_devices

from steelyard.errors import InputError

CPU = torch.device("cpu")
WITHOUT_DOUBLE = frozenset({"mps"})
"""Kinds of devices that have no numbers of float64."""


def checked_device(name: str) -> torch.device:
    """The device of this name; refused if torch cannot use it on this computer."""
    try:
        device = torch.device(name)
        if device.type == "meta":
            raise InputError("it holds no values")
        torch.empty(0, device=device)
    except Exception as error:  # AssertionError without CUDA, RuntimeError for other reasons
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        reason = reason.partition(". ")[0].rstrip(".")
        raise InputError(
            f"engine.device is {name!r}, which cannot be used here: {reason}; there is "
            f"{' and '.join(map(repr, available()))}: take that, or install a build of torch for your device."
        ) from error
    return device


def available() -> list[str]:
    """The devices of this computer that torch can use."""
    found = torch.accelerator.current_accelerator(check_available=True)
    count = 0 if found is None else torch.accelerator.device_count()
    names = [] if found is None else [found.type, *(f"{found.type}:{place}" for place in range(1, count))]
    return ["cpu", *names]


def can_fork() -> bool:
    """Whether forked processes can train: where torch has a GPU, not after a backward pass of this one."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return False
    if torch.accelerator.current_accelerator(check_available=True) is None:
        return True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks of processes with threads
        child = os.fork()
    if child == 0:
        os._exit(not _can_train())
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _can_train() -> bool:
    try:
        torch.autograd.backward(torch.ones((), requires_grad=True))
    except RuntimeError:  # the threads of autograd, one for each GPU, are not in a forked process
        return False
    return True


def kind_of(name: str) -> str:
    """The kind of a device, which its results depend on: "cuda" of "cuda:1"."""
    return name.partition(":")[0]


def exact(values: Tensor) -> Tensor:
    """The values where they can be converted to float64: on their device, or else on the CPU."""
    return values.cpu() if values.device.type in WITHOUT_DOUBLE else values


def has_fused_steps(device: torch.device) -> bool:
    """Whether torch has kernels for whole steps of SGD and Adam on this device."""
    return device.type in _get_fused_kernels_supported_devices()
