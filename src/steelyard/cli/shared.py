"""Options, errors and output that the commands have in common."""

import functools
import inspect
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steelyard.cli.observer_warnings import collected_warnings
from steelyard.cli.signals import exit_code, explained, interruptions
from steelyard.errors import InputError, SteelyardError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status

    from steelyard.runs.writer import Recorder
    from steelyard.server.observing import Observer
    from steelyard.server.state import FederationState
    from steelyard.simulation import SimulatedFederation as Federation
    from steelyard.specs.gate import Permission

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object, and nothing else, on standard output.")
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run code that a file names (module:factory) without asking.")
]
Latex = Annotated[
    bool, typer.Option("--latex", help="Print LaTeX tables (package booktabs) in place of the others.")
]
Out = Annotated[Path, typer.Option("--out", help="The folder in which runs are recorded.")]


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Print errors as one sentence; exit with code 2 for bad input, 1 for a failure.

    Ctrl-C and SIGTERM are interruptions: the run is saved, and the codes are 130 and 143.
    """

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        as_json = kwargs.get("as_json", False)
        try:
            with interruptions():
                command(*args, **kwargs)
        except SteelyardError as error:
            fail(str(error), 2 if isinstance(error, InputError) else 1, as_json)
        except KeyboardInterrupt as interrupt:
            fail(str(interrupt) or "interrupted.", exit_code(interrupt), as_json)
        except BrokenPipeError:  # such as `| head`; typer ends quietly
            raise
        except OSError as error:  # too many open files, no space, no permission
            where = f" ({error.filename})" if error.filename else ""
            fail(f"{error.strerror or error}{where}.", 1, as_json)

    wrapper.__doc__ = joined_lines(command.__doc__ or "")
    return wrapper


def joined_lines(text: str) -> str:
    """A docstring with each paragraph in one line, which `--help` wraps to the terminal's width.

    Paragraphs with an indented line stay as they are: examples.
    """
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        each if re.search(r"^ ", each, flags=re.MULTILINE) else " ".join(each.splitlines())
        for each in paragraphs
    )


def split_words(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """(presets and files, overrides): words that begin with `key=` are overrides.

    The folder of a run may have "=" in its name, as in runs/20261115-220936-fedavg+rounds=5-s0/spec.toml.
    """
    from steelyard.specs.sources import parse_override

    targets = [word for word in words if "=" not in word or not is_override(word)]
    return targets, dict(parse_override(word) for word in words if word not in targets)


def is_override(word: str) -> bool:
    """Whether all before the first "=" can be the key of a setting, or is missing."""
    return re.fullmatch(r"[\w.-]*", word.partition("=")[0]) is not None


def one_target(words: Sequence[str] | None) -> tuple[str | None, dict[str, Any]]:
    """(preset or file, overrides), with at most one preset or file."""
    targets, overrides = split_words(words or [])
    if len(targets) > 1:
        raise InputError(
            f"one preset or spec at a time, not {' and '.join(targets)}; settings are words such as "
            "rounds=50, and `compare` takes several specs."
        )
    return (targets[0] if targets else None), overrides


def seed_numbers(text: str) -> list[int]:
    """Distinct integers, separated by commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"-?\d+", part) for part in parts) or len(set(map(int, parts))) < len(parts):
        raise InputError(f"--seeds takes different whole numbers, such as 0,1,2, not {text!r}.")
    return [int(part) for part in parts]


def check_files(picture: Path | None, table: Path | None = None) -> None:
    """Refuse, before the work begins, files that could not be written when it is done."""
    from steelyard.report.style import picture_format

    if picture is not None:
        picture_format(picture)
    for path in (picture, table):
        if path is not None and not path.parent.is_dir():
            raise InputError(f"cannot write {path}: there is no folder {path.parent}.")
        if path is not None and path.is_dir():
            raise InputError(f"cannot write {path}: it is a folder.")


def stderr() -> "Console":
    from steelyard.report.console import SafeConsole

    return SafeConsole(stderr=True)


def permission(trust: bool, status: "Status | None" = None) -> "Permission":
    """Whether code that a file names may run: yes with --trust; else the user is asked, on a terminal."""

    def ask(file: Path, names: Sequence[str]) -> bool:
        if status is not None:
            status.stop()  # it writes over the question, and hides the terminal behind sys.stderr
        answer = _answer(file, names) if sys.stdin.isatty() and sys.stderr.isatty() else ""
        if answer == "t":
            from steelyard.specs.trust import trust_folder

            trust_folder(file.parent)
        if status is not None:
            status.start()
        return answer in ("y", "t")

    return trust or ask


def _answer(file: Path, names: Sequence[str]) -> str:
    console = stderr()
    console.print(f"{file} names code that is not part of steelyard:")
    for name in names:
        console.print(f"  {name}", style="bold")
    console.print("It can do on this computer all that you can do.")
    console.print("Run this code? [y/N], or t to trust its folder from now on: ", end="", highlight=False)
    return sys.stdin.readline().strip().lower()[:1]


def finish(
    name: str,
    federation: "Federation",
    recorder: "Recorder",
    state: "FederationState | None" = None,
    observers: "Sequence[Observer]" = (),
) -> Path:
    """Run a federation to its end with a progress bar on standard error; returns the run's folder."""
    from steelyard.report.progress import progress

    done = 0 if state is None else state.round - (state.pending is not None)
    with progress(stderr(), name, federation.rounds, done) as observer, collected_warnings() as found:
        try:
            federation.run(observer, *observers, recorder=recorder, state=state, progress=False)
        except KeyboardInterrupt as interrupt:
            hint = f"`steelyard resume {recorder.path}` continues."
            raise explained(interrupt, f"the finished rounds are recorded, and {hint}") from None
    for text in found:
        warn(text)
    return recorder.path


def warn(text: str) -> None:
    from rich.text import Text

    stderr().print(Text.assemble(("warning: ", "bold red"), text), soft_wrap=True)


def exit_if_warned(path: Path) -> None:
    """Print what is wrong with a recorded run, if anything is, and exit with code 1."""
    from steelyard.runs.reader import Run

    if text := Run(path).meta.get("warning"):
        warn(text)
        raise typer.Exit(1)


def show_values(values: dict[str, Any], view: "Callable[[], RenderableType]", as_json: bool) -> None:
    """Print the values as JSON, or the view of them."""
    from steelyard.report.console import SafeConsole
    from steelyard.texts import escaped, finite

    if as_json:
        print(escaped(json.dumps(finite(values), ensure_ascii=False)))
    else:
        SafeConsole().print(view(), crop=False)  # do not cut long paths


def say(message: str) -> None:
    """Print a note on standard error."""
    from rich.text import Text

    stderr().print(Text(message), soft_wrap=True)


def fail(message: str, code: int, as_json: bool) -> None:
    from rich.text import Text

    from steelyard.texts import escaped

    stderr().print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)
    if as_json:
        print(escaped(json.dumps({"error": message}, ensure_ascii=False)))
    raise typer.Exit(code)
