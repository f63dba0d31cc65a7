"""How a client steps: SGD and Adam in torch's functional form, and any other optimiser of torch.

In the functional form, state is explicit, one fused kernel does a step, and on small models a step costs a
quarter of what the `torch.optim` classes take (`benchmarks/optimizer_step.py`).
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from textwrap import shorten

import torch
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from steelyard.data.batches import in_sentence
from steelyard.devices import has_fused_steps
from steelyard.errors import InputError
from steelyard.schedules import AnySchedule, Constant, Progress, changes_within_rounds, factor_of
from steelyard.settings import Training

Evaluate = Callable[[], Tensor]
"""Computes the loss and the gradients of all parameters; returns the loss."""
Step = Callable[[float, Evaluate], Tensor]
"""Evaluates the loss, moves the parameters along their gradients with a factor on the learning rate, and
returns the loss. Parameters without a gradient stay."""
MakeStep = Callable[[Sequence[Tensor], Training], Step]

FUSED_OPTIONS = {"sgd": {"nesterov"}, "adam": {"betas", "eps"}}
"""Options that the functional form takes here; with others, the class of `torch.optim` is used."""
NOT_ELEMENTWISE = frozenset({"adafactor", "lbfgs", "muon", "sparseadam"})
"""Optimisers of torch whose step at one coordinate depends on others."""


def make_sgd(parameters: Sequence[Tensor], training: Training) -> Step:
    plain, fused = [parameter.detach() for parameter in parameters], _fused(parameters)
    velocities: list[Tensor | None] = [None] * len(plain)  # torch makes them from the first gradients
    nesterov = bool((training.options or {}).get("nesterov", False))

    def step(factor: float, evaluate: Evaluate) -> Tensor:
        loss = evaluate()
        used = [place for place, parameter in enumerate(parameters) if parameter.grad is not None]
        moving = [velocities[place] for place in used]
        if any(velocity is not None for velocity in moving):
            moving = [
                torch.zeros_like(plain[place]) if velocity is None else velocity
                for place, velocity in zip(used, moving, strict=True)
            ]
        sgd(
            [plain[place] for place in used],
            [_dense_gradient(parameters[place]) for place in used],
            moving,
            fused=fused,
            lr=training.lr * factor,
            momentum=training.momentum,
            weight_decay=training.weight_decay,
            dampening=0.0,
            nesterov=nesterov,
            maximize=False,
        )
        for place, velocity in zip(used, moving, strict=True):
            velocities[place] = velocity
        return loss

    return step


def make_adam(parameters: Sequence[Tensor], training: Training) -> Step:
    plain, fused = [parameter.detach() for parameter in parameters], _fused(parameters)
    firsts = [torch.zeros_like(parameter) for parameter in plain]
    seconds = [torch.zeros_like(parameter) for parameter in plain]
    counts = [torch.zeros((), device=parameter.device) for parameter in plain]
    options = training.options or {}
    beta1, beta2 = options.get("betas", (0.9, 0.999))

    def step(factor: float, evaluate: Evaluate) -> Tensor:
        loss = evaluate()
        used = [place for place, parameter in enumerate(parameters) if parameter.grad is not None]
        adam(
            [plain[place] for place in used],
            [_dense_gradient(parameters[place]) for place in used],
            [firsts[place] for place in used],
            [seconds[place] for place in used],
            [],
            [counts[place] for place in used],
            fused=fused,
            lr=training.lr * factor,
            beta1=beta1,
            beta2=beta2,
            eps=options.get("eps", 1e-8),
            weight_decay=training.weight_decay,
            amsgrad=False,
            maximize=False,
        )
        return loss

    return step


def _fused(parameters: Sequence[Tensor]) -> bool:
    """Whether one kernel can do the step of all parameters, on their device."""
    return not parameters or has_fused_steps(parameters[0].device)


def _dense_gradient(parameter: Tensor) -> Tensor:
    """The fused kernels read memory as it lies: a gradient must lie as its parameter does."""
    gradient = parameter.grad
    assert gradient is not None
    if gradient.is_sparse:
        gradient = gradient.to_dense()
    if gradient.stride() != parameter.stride():
        gradient = torch.empty_like(parameter).copy_(gradient)
    return gradient


OPTIMIZERS: Mapping[str, MakeStep] = {"sgd": make_sgd, "adam": make_adam}
"""The optimisers that have a functional form here."""


def make_step(parameters: Sequence[Tensor], training: Training, model: nn.Module | None = None) -> Step:
    """A new optimiser for the parameters of a client, or for those that clients have stacked."""
    if is_fused(training):
        return OPTIMIZERS[str(training.optimizer)](parameters, training)
    return step_of(make_optimizer(parameters, training, model))


def is_fused(training: Training) -> bool:
    """Whether the optimiser has a functional form here."""
    name = training.optimizer
    return name in OPTIMIZERS and (not training.options or set(training.options) <= FUSED_OPTIONS[str(name)])


def make_optimizer(
    parameters: Sequence[Tensor], training: Training, model: nn.Module | None = None
) -> torch.optim.Optimizer:
    """An optimiser of torch: an object of its class, or what the user's function returns."""
    kind, make = training.optimizer_class, training.optimizer
    if kind is not None:
        return kind(list(parameters), **training.optimizer_arguments())
    assert callable(make)
    made = make(model) if [*inspect.signature(make).parameters] == ["model"] else make(list(parameters))
    if not isinstance(made, torch.optim.Optimizer):
        raise InputError(
            f"the function {training.optimizer_name} in training.optimizer must return a "
            f"torch.optim.Optimizer, not {shorten(repr(made), 100)}."
        )
    return made


def step_of(optimizer: torch.optim.Optimizer) -> Step:
    """A step of an optimiser object. It gets the loss as a closure only if it asks for one, as LBFGS does."""
    rates = [group.get("lr") for group in optimizer.param_groups]
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    asks = closure is not None and closure.default is closure.empty

    def step(factor: float, evaluate: Evaluate) -> Tensor:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            if rate is not None:
                group["lr"] = rate * factor
        if not asks:
            loss = evaluate()
            optimizer.step()
            return loss
        losses: list[Tensor] = []

        def evaluate_again() -> float:
            losses.append(evaluate().detach())
            return float(losses[-1])

        optimizer.step(evaluate_again)
        return losses[0]

    return step


def check_training(training: Training, model: nn.Module, rounds: int) -> None:
    """Refuse an optimiser or a schedule of the user's own that does not work, before the first round."""
    _try_schedule(training.schedule, Progress(1, rounds))
    if is_fused(training):
        return
    try:
        optimizer = make_optimizer(
            [each for each in model.parameters() if each.requires_grad], training, model
        )
    except InputError:
        raise
    except Exception as error:  # whatever torch, or the user's function, says
        reason = f"{type(error).__name__}: {error}".split("\n")[0].rstrip(".")
        raise InputError(
            f"training.optimizer {training.optimizer_name} cannot be made for this model: {reason}."
        ) from error
    if training.schedule != Constant() and any("lr" not in group for group in optimizer.param_groups):
        raise InputError(
            f"training.schedule has no effect: {training.optimizer_name} has no learning rate; leave it out."
        )


def _try_schedule(schedule: AnySchedule, progress: Progress) -> None:
    """Refuse a schedule of the user's own that cannot be called."""
    try:
        factor_of(schedule, progress)
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            "training.schedule must be a function of the progress that returns a factor; called with "
            f"{progress}, it failed: {type(error).__name__}: {in_sentence(error)}."
        ) from error


def why_not_together(training: Training) -> str | None:
    """The reason why clients with these settings cannot be trained together on stacked parameters, if any."""
    own = not isinstance(training.optimizer, str)
    if own or training.optimizer in NOT_ELEMENTWISE:
        return f"the optimiser {training.optimizer_name} may mix the parameters of clients"
    if training.clip_norm is not None:
        return "training.clip_norm needs the gradient of each client by itself"
    if training.accumulate > 1:
        return "training.accumulate is more than 1"
    if training.precision != "float32":
        return f"training.precision is {training.precision}"
    if changes_within_rounds(training.schedule):
        return "training.schedule may change within a round, in which clients have different numbers of steps"
    return None
