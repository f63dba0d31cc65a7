"""Options, errors and output that the commands have in common."""

import functools
import json
import math
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steelyard.errors import InputError, SteelyardError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from steelyard.runs.writer import Recorder
    from steelyard.server.state import FederationState
    from steelyard.simulation import SimulatedFederation as Federation

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, and nothing else, on standard output.")
]
Out = Annotated[Path, typer.Option("--out", help="The folder in which runs are recorded.")]


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Print errors as one sentence; exit with code 2 for bad input, 1 for a failure or an interruption."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except SteelyardError as error:
            fail(str(error), 2 if isinstance(error, InputError) else 1, kwargs.get("as_json", False))
        except KeyboardInterrupt:
            fail("interrupted.", 1, kwargs.get("as_json", False))

    return wrapper


def split_words(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """(presets and files, overrides): words with "=" are overrides."""
    from steelyard.specs.sources import parse_override

    targets = [word for word in words if "=" not in word]
    return targets, dict(parse_override(word) for word in words if "=" in word)


def one_target(words: Sequence[str] | None) -> tuple[str | None, dict[str, Any]]:
    """(preset or file, overrides), with at most one preset or file."""
    targets, overrides = split_words(words or [])
    if len(targets) > 1:
        raise InputError(
            f"one preset or spec at a time, not {' and '.join(targets)}; `compare` takes several."
        )
    return (targets[0] if targets else None), overrides


def seed_numbers(text: str) -> list[int]:
    """Distinct integers, separated by commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"-?\d+", part) for part in parts) or len(set(map(int, parts))) < len(parts):
        raise InputError(f"--seeds takes different whole numbers, such as 0,1,2, not {text!r}.")
    return [int(part) for part in parts]


def stderr() -> "Console":
    from rich.console import Console

    return Console(stderr=True)


def finish(
    name: str, federation: "Federation", recorder: "Recorder", state: "FederationState | None" = None
) -> Path:
    """Run a federation to its end with a progress bar on standard error; returns the run's folder."""
    from steelyard.report.terminal import progress

    with progress(stderr(), name, federation.rounds) as observer:
        try:
            federation.run(observer, recorder=recorder, state=state)
        except KeyboardInterrupt:
            hint = f"`steelyard resume {recorder.path}` continues."
            raise SteelyardError(f"interrupted; the finished rounds are recorded, and {hint}") from None
    return recorder.path


def show_values(values: dict[str, Any], view: "Callable[[], RenderableType]", as_json: bool) -> None:
    """Print the values as JSON, or the view of them."""
    if as_json:
        print(json.dumps(_finite(values), ensure_ascii=False))
    else:
        from rich.console import Console

        Console().print(view(), crop=False)  # do not cut long paths


def _finite(value: Any) -> Any:
    """JSON has no infinity and no NaN: they become null."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def fail(message: str, code: int, as_json: bool) -> None:
    from rich.text import Text

    stderr().print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    if as_json:
        print(json.dumps({"error": message}, ensure_ascii=False))
    raise typer.Exit(code)
