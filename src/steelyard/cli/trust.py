"""The command `steelyard trust`."""

from pathlib import Path
from typing import Annotated

import typer

from steelyard.cli.shared import Json, guarded, show_values
from steelyard.errors import InputError


@guarded
def trust(
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The folder to trust.", show_default=False)
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Do not trust this folder any longer.")] = False,
    listed: Annotated[bool, typer.Option("--list", help="Show the folders that are trusted.")] = False,
    as_json: Json = False,
) -> None:
    """Trust a folder: specs and runs in it, and below it, may run code that they name.

    A spec or a run of somebody else can name any code on this computer ([cyan]module:factory[/]). Steelyard
    asks before it runs such code. It does not ask about names that you type, or about runs that you made.

    [dim]Examples:[/]

        steelyard trust my-project
        steelyard trust --list
        steelyard trust my-project --remove
    """
    from steelyard.specs.trust import distrust_folder, trust_folder, trusted_folders

    if (folder is None) != listed or (listed and remove):
        raise InputError("name one folder, or pass --list alone.")
    if folder is not None:
        done = distrust_folder(folder) if remove else trust_folder(folder)
        word = "not trusted any longer" if remove else "trusted from now on"
        show_values({"folder": str(done), "trusted": not remove}, lambda: f"{done} is {word}.", as_json)
        return
    folders = [str(each) for each in trusted_folders()]
    show_values({"folders": folders}, lambda: "\n".join(folders) or "no folder is trusted.", as_json)
