"""The command line. Heavy imports wait until a command needs them: `--help` answers at once."""

import functools
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from steelyard import __version__
from steelyard.errors import InputError, SteelyardError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Federated learning for parties that are unequal and not all to be trusted.\n\n"
    "[bold]steelyard run[/] trains ten clients on scikit-learn's digits, with no download, in seconds. "
    "[bold]steelyard list presets[/] shows what else is ready to run, and every setting can be changed:\n\n"
    "[cyan]steelyard run fedprox data.dataset=mnist model=light-cnn rounds=50 training.lr=0.1[/]",
)
data_app = typer.Typer(
    no_args_is_help=True, help="Find, fetch and look at data sets.", rich_markup_mode="rich"
)
app.add_typer(data_app, name="data")

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, and nothing else there.")
]
Out = Annotated[Path, typer.Option("--out", help="The folder in which runs are recorded.")]


class Listable(StrEnum):
    rules = "rules"
    objectives = "objectives"
    combiners = "combiners"
    sharings = "sharings"
    datasets = "datasets"
    partitions = "partitions"
    shifts = "shifts"
    models = "models"
    presets = "presets"


def guarded(command: Callable[..., None]) -> Callable[..., None]:
    """Errors in one sentence: exit code 2 for bad input, 1 for a failure or an interruption."""

    @functools.wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except SteelyardError as error:
            _fail(str(error), 2 if isinstance(error, InputError) else 1, kwargs.get("as_json", False))
        except KeyboardInterrupt:
            _fail("interrupted; the finished rounds are recorded.", 1, kwargs.get("as_json", False))

    return wrapper


@app.command()
@guarded
def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PRESET | SPEC.toml] [KEY=VALUE]...", help="What to run, and what to change."
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Training seed; data.seed follows unless it is set.")
    ] = None,
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Run a federation and record it.

    Without an argument: FedAvg on scikit-learn's digits, ten clients with Dirichlet(0.3) labels.

    Settings come from the defaults, then the preset, then the file, then the command line; the run keeps the
    outcome as [cyan]spec.toml[/], which is itself a file you can run.

    [dim]Examples:[/]

        steelyard run
        steelyard run fedprox objective.mu=0.01 --seed 3
        steelyard run my.toml data.clients=50 clients_per_round=10
        steelyard run model=my_package:make_model training.steps=20
    """
    from steelyard.record import Run
    from steelyard.report.summary import summarise
    from steelyard.report.terminal import run_report

    targets, overrides = _split(words or [])
    if len(targets) > 1:
        raise InputError(
            f"one preset or spec at a time, not {' and '.join(targets)}; `compare` takes several."
        )
    if seed is not None:
        overrides["seed"] = seed
    summary = summarise(Run(_run(targets[0] if targets else None, overrides, out)))
    _show(summary, lambda: run_report(summary), as_json)


@app.command()
@guarded
def compare(
    words: Annotated[
        list[str], typer.Argument(metavar="A B... [KEY=VALUE]...", help="Presets or spec files.")
    ],
    seeds: Annotated[str, typer.Option(help="Training seeds, separated by commas.")] = "0,1,2",
    out: Out = Path("runs"),
    as_json: Json = False,
) -> None:
    """Run several specs on the same seeds and show mean ± sd.

    What is already recorded under --out is not run again, so an interrupted comparison goes on where it was.

    [dim]Example:[/]

        steelyard compare fedavg fedprox --seeds 0,1,2 data.partition.alpha=0.1
    """
    from steelyard.comparison import compare as compare_specs
    from steelyard.report.terminal import comparison_report, progress

    targets, overrides = _split(words)
    if not targets:
        raise InputError("name at least one preset or spec file to compare.")
    numbers = _seeds(seeds)
    rows = compare_specs(
        targets,
        numbers,
        overrides,
        out,
        lambda spec: progress(_stderr(), f"{spec.name} seed {spec.seed}", spec.rounds),
    )
    _show({"seeds": numbers, "rows": rows}, lambda: comparison_report(rows, numbers), as_json)


@app.command()
@guarded
def show(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    as_json: Json = False,
) -> None:
    """Show a recorded run: who counted, how much, and how good the model is."""
    from steelyard.record import Run
    from steelyard.report.summary import summarise
    from steelyard.report.terminal import run_report

    summary = summarise(Run(path))
    _show(summary, lambda: run_report(summary), as_json)


@app.command("list")
@guarded
def list_(
    kind: Annotated[Listable, typer.Argument(metavar="KIND", help=", ".join(Listable))],
    as_json: Json = False,
) -> None:
    """List what a spec can name, with its settings and their defaults.

    Rules, objectives, models and the rest may also be your own: [cyan]my_package.module:factory[/].
    """
    from steelyard import registry
    from steelyard.report.terminal import catalogue
    from steelyard.spec import presets

    if kind is Listable.presets:
        found = [{"name": name, "about": table.get("about", "")} for name, table in presets().items()]
        rows = [(each["name"], each["about"]) for each in found]
        _show({"presets": found}, lambda: catalogue("presets", rows, ("preset", "what it is")), as_json)
    else:
        members = registry.describe(kind.value)
        lines = [(each["name"], _assignments(each["settings"]), each["about"]) for each in members]
        headings = ("name", "settings", "what it does")
        _show({kind.value: members}, lambda: catalogue(kind.value, lines, headings), as_json)


@data_app.command("list")
@guarded
def data_list(as_json: Json = False) -> None:
    """List the data sets and their licences."""
    from steelyard.report.terminal import catalogue

    sources = _sources()
    found = [{"name": each.name, "about": each.about, "licence": each.licence} for each in sources]
    rows = [(each.name, each.about, each.licence) for each in sources]
    _show(
        {"datasets": found}, lambda: catalogue("data sets", rows, ("name", "what it is", "licence")), as_json
    )


@data_app.command("get")
@guarded
def data_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set; see `steelyard data list`.")],
    as_json: Json = False,
) -> None:
    """Fetch a data set into the cache, unless it is here already, and check it."""
    from steelyard import registry
    from steelyard.data import store
    from steelyard.data.sources import source_of

    source = source_of(registry.find("datasets", name))
    if source.files:
        store.load(source)
    _show({"name": name, "where": store.status(source)}, lambda: f"{name}: {store.status(source)}", as_json)


@data_app.command("where")
@guarded
def data_where(as_json: Json = False) -> None:
    """Show where data sets are looked for, and where each was found."""
    from steelyard.data import store
    from steelyard.report.terminal import catalogue

    folders = {"STEELYARD_DATA": str(store.data_folder() or "not set"), "cache": str(store.cache_folder())}
    found = {each.name: store.status(each) for each in _sources()}
    rows = [*folders.items(), *found.items()]
    _show(
        {**folders, "datasets": found}, lambda: catalogue("where data is", rows, ("what", "where")), as_json
    )


@data_app.command("show")
@guarded
def data_show(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[PRESET | SPEC.toml] [KEY=VALUE]...", help="Whose split.")
    ] = None,
    png: Annotated[Path, typer.Option(help="The picture to write.")] = Path("split.png"),
    as_json: Json = False,
) -> None:
    """Draw who holds how much of which class.

    [dim]Example:[/]

        steelyard data show data.dataset=mnist data.partition=shards data.clients=20 --png split.png
    """
    from steelyard.report.split import draw_spec
    from steelyard.spec import load_spec

    targets, overrides = _split(words or [])
    counts = draw_spec(load_spec(targets[0] if targets else None, overrides), png)
    _show({"png": str(png), "counts": counts}, lambda: f"{len(counts)} clients drawn in {png}", as_json)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    sys.path.insert(0, os.getcwd())  # so that "my_package:factory" is found where the user stands
    app(prog_name="steelyard")


def _run(target: str | None, overrides: dict[str, Any], out: Path) -> Path:
    """Run a spec with a progress display on standard error."""
    console = _stderr()
    with console.status("loading"):
        from steelyard.experiment import run as run_spec
        from steelyard.report.terminal import progress
        from steelyard.spec import load_spec

        spec = load_spec(target, overrides)
    with progress(console, spec.name, spec.rounds) as observer:
        result = run_spec(spec, observer, out=out)
    assert result.path is not None
    return result.path


def _split(words: Sequence[str]) -> tuple[list[str], dict[str, Any]]:
    """Words with "=" change settings; the others name presets and files."""
    from steelyard.spec import parse_override

    targets = [word for word in words if "=" not in word]
    return targets, dict(parse_override(word) for word in words if "=" in word)


def _seeds(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(
            f"--seeds takes whole numbers separated by commas, such as 0,1,2, not {text!r}."
        ) from None


def _sources() -> list[Any]:
    from steelyard import registry
    from steelyard.data.sources import source_of

    return [source_of(factory) for factory in registry.names("datasets").values()]


def _assignments(settings: dict[str, Any]) -> str:
    return " ".join(
        f"{name}={value['name'] if isinstance(value, dict) else value}" for name, value in settings.items()
    )


def _stderr() -> "Console":
    from rich.console import Console

    return Console(stderr=True)


def _show(values: dict[str, Any], view: "Callable[[], RenderableType]", as_json: bool) -> None:
    """The one way out: JSON, or something for people."""
    if as_json:
        print(json.dumps(_finite(values), ensure_ascii=False))
    else:
        from rich.console import Console

        Console().print(view())


def _finite(value: Any) -> Any:
    """JSON has no infinity and no NaN: they become null."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _fail(message: str, code: int, as_json: bool) -> None:
    from rich.text import Text

    _stderr().print(Text.assemble(("error: ", "bold red"), message))
    if as_json:
        print(json.dumps({"error": message}, ensure_ascii=False))
    raise typer.Exit(code)
