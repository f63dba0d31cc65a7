"""The commands `steelyard data …`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from steelyard.cli.shared import Json, Trust, check_files, guarded, one_target, permission, show_values

app = typer.Typer(no_args_is_help=True, help="List, find, fetch and draw data sets.", rich_markup_mode="rich")


@app.command("list")
@guarded
def data_list(as_json: Json = False) -> None:
    """List the data sets and their licences."""
    from steelyard.report.terminal import catalogue

    sources = _sources()
    values = [{"name": source.name, "about": source.about, "licence": source.licence} for source in sources]
    rows = [(source.name, source.about, source.licence) for source in sources]
    show_values(
        {"datasets": values}, lambda: catalogue("data sets", rows, ("name", "what it is", "licence")), as_json
    )


@app.command("get")
@guarded
def data_get(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A data set; see `steelyard data list`.")],
    as_json: Json = False,
) -> None:
    """Fetch a data set into the cache, unless it is on this computer, and compare its checksums."""
    from steelyard import components
    from steelyard.data import store
    from steelyard.data.sources import source_of

    known = {source.name: source for source in _sources()}
    source = known.get(name) or source_of(components.find("datasets", name))
    if source.files:
        store.load(source)
    show_values(
        {"name": name, "where": store.status(source)}, lambda: f"{name}: {store.status(source)}", as_json
    )


@app.command("where")
@guarded
def data_where(as_json: Json = False) -> None:
    """Show the folders that are searched for data sets, and the folder of each data set."""
    from steelyard.data import store
    from steelyard.report.terminal import catalogue

    folders = {"STEELYARD_DATA": str(store.data_folder() or "not set"), "cache": str(store.cache_folder())}
    places = {source.name: store.status(source) for source in _sources()}
    rows = [*folders.items(), *places.items()]
    show_values(
        {**folders, "datasets": places}, lambda: catalogue("where data is", rows, ("what", "where")), as_json
    )


@app.command("show")
@guarded
def data_show(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[PRESET | SPEC.toml] [KEY=VALUE]...", hidden=True)
    ] = None,
    png: Annotated[
        Path, typer.Option("--figure", "--png", help="The file to write: .png, .pdf or .svg.")
    ] = Path("split.png"),
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Draw how many examples of each class every client has.

    Up to 40 clients are rows with their names; more are columns, ordered by their most frequent class.

    [dim]Example:[/]

        steelyard data show data.dataset=mnist data.partition=shards
    """
    from steelyard.report.split import draw_spec
    from steelyard.specs.schema import load_spec

    check_files(png)
    target, overrides = one_target(words)
    counts = draw_spec(load_spec(target, overrides, permission(trust)), png)
    show_values({"png": str(png), "counts": counts}, lambda: f"{len(counts)} clients drawn in {png}", as_json)


def _sources() -> list[Any]:
    from steelyard import components
    from steelyard.data.sources import source_of

    sources = [source_of(factory) for factory in components.names("datasets").values()]
    return list({source.name: source for source in sources}.values())  # several tables have one source
