"""The command `steelyard page`, and the option `--page` of the commands that run a federation."""

import html
import json
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from steelyard.cli.shared import Json, guarded, say, warn
from steelyard.cli.signals import exit_code
from steelyard.errors import SteelyardError

if TYPE_CHECKING:
    from steelyard.page.child import PageChild

Start = Callable[[Path | str, Callable[[str], None]], None]
"""Starts the page of a run, and logs its address."""
Page = Annotated[
    bool, typer.Option("--page", help="Show the run in a browser while it goes on: prints the address.")
]


@guarded
def page(
    path: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or a folder of runs.")],
    port: Annotated[
        int | None, typer.Option(help="The port of this page from now on (default: one that is free).")
    ] = None,
    browser: Annotated[
        bool, typer.Option("--open/--no-open", help="Open it in the browser, if this is a terminal.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show a run, or a folder of runs, in the browser: live while it goes on. Ctrl-C ends it.

    Only this machine can open the page, and only with the secret in its address. The address stays the
    same when the page is started again.

    [dim]Examples:[/]

        steelyard page runs
        steelyard page runs/20261115-220936-fedavg-s0 --open
    """
    from steelyard.page.child import check_installed

    check_installed()
    from steelyard.page.serving import open_page

    server = open_page(path, port)
    if server.note is not None:
        say(server.note)
    print(json.dumps({"url": server.url}) if as_json else server.url, flush=True)
    if browser and sys.stdin.isatty() and sys.stderr.isatty():
        threading.Thread(target=_open_browser, args=(path, server.url), daemon=True).start()
    with _ended_by_control_c():
        server.serve_until_asked()


def check_page(wanted: bool) -> None:
    """Raise an error if a page is wanted that could not be served."""
    if wanted:
        from steelyard.page.address import check_free_port
        from steelyard.page.child import check_installed

        check_installed()
        check_free_port()


@contextmanager
def page_beside(path: Path, wanted: bool) -> Iterator[None]:
    """Serve the page of a run, or of a folder of runs, while the block goes on; prints its address.

    On a terminal, it stays open after the block until Ctrl-C.
    """
    with later_page(wanted) as start:
        start(path, say)
        yield


@contextmanager
def later_page(wanted: bool) -> Iterator[Start]:
    """The same, for a folder that is known only later: gives the function that starts the page.

    Only its first call starts one. If the page fails, the run goes on.
    """
    with ExitStack() as stack:
        children: list[PageChild] = []
        called = not wanted

        def start(path: Path | str, log: Callable[[str], None]) -> None:
            nonlocal called
            if called or not path:
                return
            called = True
            from steelyard.page.child import PageChild

            try:
                child = stack.enter_context(PageChild(Path(path)))
            except (SteelyardError, OSError) as error:
                warn(f"{error} The run goes on without it.")
                return
            children.append(child)
            log(f"{child.note} {child.url}" if child.note else f"page: {child.url}")

        yield start
        for child in children:
            _keep_open(child)


def _keep_open(child: "PageChild") -> None:
    if sys.stdin.isatty() and sys.stderr.isatty():
        say(f"the run is over; the page stays open until Ctrl-C: {child.url}")
        with _ended_by_control_c():
            child.wait()


@contextmanager
def _ended_by_control_c() -> Iterator[None]:
    """Ctrl-C is the usual end of a page, and no error."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if exit_code(interrupt) != 130:
            raise


def _open_browser(path: Path, url: str) -> None:
    """Open the page by way of a private file: other users can see the arguments of a browser."""
    import webbrowser

    from steelyard.page.address import state_file
    from steelyard.tensor_files import write_private

    file = state_file(path).with_suffix(".html")
    write_private(file, f'<meta http-equiv="refresh" content="0; url={html.escape(url)}">\n'.encode())
    webbrowser.open(file.as_uri())
