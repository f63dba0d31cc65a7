"""The command line. Heavy modules are imported by the commands that need them, so that `--help` is fast."""

import os
from pathlib import Path
from typing import Annotated

import typer

from steelyard import __version__
from steelyard.cli.calibration import calibration
from steelyard.cli.catalogue import list_
from steelyard.cli.compare import compare
from steelyard.cli.data import app as data_app
from steelyard.cli.demo import run_demo
from steelyard.cli.deploy import app as deploy_app
from steelyard.cli.grid import grid
from steelyard.cli.page import Page, check_page, page, page_beside
from steelyard.cli.report import report
from steelyard.cli.reproduce import reproduce
from steelyard.cli.shared import (
    Json,
    Out,
    Trust,
    exit_if_warned,
    finish,
    guarded,
    one_target,
    permission,
    say,
    show_values,
    stderr,
    warn,
)
from steelyard.cli.trust import trust
from steelyard.cli.verbosity import Verbose, show_log

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Federated learning for clients that are unequal and not all to be trusted.\n\n"
    "[bold]steelyard run[/] trains ten clients, three of which send noise, under three weighing rules. "
    "It takes seconds and downloads nothing. "
    "[bold]steelyard list presets[/] shows what else is ready to run. Every setting can be changed:\n\n"
    "[cyan]steelyard run fedprox data.clients=20 rounds=50 training.lr=0.05[/]\n\n"
    "[bold]steelyard spec fedprox[/] prints all settings, and [bold]steelyard list[/] what they can be.",
)
app.add_typer(data_app, name="data")
app.add_typer(deploy_app, name="deploy")


@app.command()
@guarded
def run(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PRESET | SPEC.toml] [KEY=VALUE]...", hidden=True),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Training seed; also data.seed, unless that is set.")
    ] = None,
    out: Out = Path("runs"),
    trust: Trust = False,
    page: Page = False,
    as_json: Json = False,
) -> None:
    """Run a federation and record it.

    Without arguments: the demo. Three of ten clients send noise; the preset [cyan]poisoned[/] is run under
    FedAvg, IVAR-VB and majority, and shown side by side. Without a preset or file, settings change the
    defaults: FedAvg on scikit-learn's digits, ten clients with Dirichlet(0.3) labels.

    Settings are words such as rounds=50 or training.lr=0.1, without dashes. All of them are printed by
    [bold]steelyard spec[/], and what they can be by [bold]steelyard list[/]. They come from the defaults,
    then the preset, then the file, then the command line. All of them are recorded as [cyan]spec.toml[/],
    which can itself be run.

    [dim]Examples:[/]

        steelyard run
        steelyard run fedprox objective.mu=0.01 --seed 3
        steelyard run poisoned weighing=ivar-vb adversaries.attack=sign-flip
        steelyard run my.toml data.clients=50 clients_per_round=10
        steelyard run model=my_package:make_model training.steps=20
    """
    check_page(page)
    if not words:
        run_demo(seed, out, page, as_json)
        return
    with stderr().status("loading") as status:
        from steelyard.specs.building import build, build_observers, spec_warnings
        from steelyard.specs.running import recorder_for
        from steelyard.specs.schema import load_spec

        target, overrides = one_target(words)
        if seed is not None:
            overrides["seed"] = seed
        spec = load_spec(target, overrides, permission(trust, status))
        federation, observers = build(spec), build_observers(spec)
    for text in spec_warnings(spec):
        warn(text)
    recorder = recorder_for(spec, out)
    with page_beside(recorder.path, page):
        path = finish(spec.name, federation, recorder, observers=observers)
        _show_run(path, as_json)
    exit_if_warned(path)


@app.command()
@guarded
def spec(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PRESET | SPEC.toml] [KEY=VALUE]...", hidden=True),
    ] = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Print the spec that would run, with every default filled in; options that are not set are comments.

    Settings of code outside steelyard ([cyan]module:factory[/]) are printed as they are, because nothing is
    imported; with --trust they are checked and completed as well.

    [dim]Example:[/]

        steelyard spec fedprox data.dataset=mnist > my.toml
    """
    from steelyard.specs.field_docs import with_unset
    from steelyard.specs.schema import load_spec
    from steelyard.texts import escaped

    resolved = load_spec(*one_target(words), trust, imports=trust)
    if as_json:
        show_values(resolved.model_dump(), str, as_json)
    else:
        print(
            escaped(with_unset(resolved.to_toml(), resolved.model_dump())), end=""
        )  # not by rich, which would wrap long lines


@app.command()
@guarded
def resume(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of an interrupted or killed run.")],
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway", help="Continue although spec, version or environment changed; numbers may differ."
        ),
    ] = False,
    trust: Trust = False,
    page: Page = False,
    as_json: Json = False,
) -> None:
    """Continue a run that was interrupted or killed.

    It ends with the same numbers, bit for bit, as a run that was never interrupted. It is refused while
    another process writes to the folder. A finished run is shown and not changed.

    [dim]Example:[/]

        steelyard resume runs/20261115-220936-fedavg-s0
    """
    check_page(page)
    with stderr().status("loading") as status:
        from steelyard.specs.running import reopen

        reopened = reopen(path, anyway, permission(trust, status))
    for note in (f"{path} is finished; nothing to do.",) if reopened is None else reopened.notes:
        say(note)
    with page_beside(path, page):
        if reopened is not None:
            federation, recorder, state, _, observers = reopened
            finish(path.name, federation, recorder, state, observers)
        _show_run(path, as_json)
    exit_if_warned(path)


@app.command()
@guarded
def show(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
    as_json: Json = False,
) -> None:
    """Show a recorded run: who counted, how much and why, and the model's scores.

    The same and more, with figures, is on the page that [bold]steelyard report[/] writes.

    [dim]Example:[/]

        steelyard show runs/20261115-220936-fedavg-s0
    """
    _show_run(path, as_json)


app.command()(report)
app.command()(page)
app.command()(compare)
app.command()(grid)
app.command()(calibration)
app.command()(reproduce)
app.command("list")(list_)
app.command()(trust)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False,
    verbose: Verbose = 0,
) -> None:
    show_log(verbose, context)
    if version:
        print(__version__)
        raise typer.Exit


def main() -> None:
    # Worker processes must not search the current folder first: a file json.py there would be run.
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    app(prog_name="steelyard")


def _show_run(path: Path, as_json: bool) -> None:
    from steelyard.report.terminal import run_report
    from steelyard.runs.reader import Run
    from steelyard.runs.summary import summarise

    summary = summarise(Run(path))
    show_values(summary, lambda: run_report(summary), as_json)
