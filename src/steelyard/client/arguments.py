"""Arguments of a federation: refused in one sentence, or completed where a name stands for an object."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from steelyard.components import as_choice, build, complete, context_of
from steelyard.errors import WHOLE, InputError
from steelyard.task import FittedTask, Task, is_name


def checked_seed(seed: Any) -> int:
    """The seed as a plain integer."""
    if wanted := WHOLE.wanted(seed):
        raise InputError(f"seed must be {wanted}, not {seed!r}.")
    return int(seed)


def checked_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{name} must be True or False, not {value!r}.")
    return value


def merged_task(task: Any, metrics: Any) -> Task:
    """The task with more metrics. Those that are given by name stay names until the classes are known."""
    if task is not None and not isinstance(task, Task):
        raise InputError(f"task must be a sy.Task, not {task!r}: write sy.Task(...).")
    if not isinstance(metrics, Mapping):
        raise InputError(f'metrics must be a table of names, such as {{"f1": "f1"}}, not {metrics!r}.')
    merged = Task() if task is None else task
    for name, metric in metrics.items():
        if is_name(metric):
            complete("metrics", as_choice(f"metrics[{name!r}]", metric))
    return replace(merged, metrics={**merged.metrics, **metrics})


def with_named_metrics(task: Task, fitted: FittedTask) -> Task:
    """The task with an object for each metric that is given by name; the task itself if none is."""
    if not any(map(is_name, task.metrics.values())):
        return task
    return replace(task, metrics={name: _made(name, each, fitted) for name, each in task.metrics.items()})


def _made(name: str, metric: Any, fitted: FittedTask) -> Any:
    if not is_name(metric):
        return metric
    choice = as_choice(f"metrics[{name!r}]", metric)
    if context_of("metrics", choice) and fitted.targets != "classes":
        raise InputError(
            f"metric {choice['name']!r} is for classes, and the targets here are of kind {fitted.targets!r}; "
            "give an object of torchmetrics, or a function of (outputs, targets)."
        )
    return build("metrics", choice, num_classes=fitted.outputs)
