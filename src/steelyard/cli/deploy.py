"""`steelyard deploy`: a real federation, across machines."""

import json
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from steelyard.cli.deploy_view import View, print_json, print_line, show_status
from steelyard.cli.page import Page, check_page, later_page
from steelyard.cli.shared import Json, Trust, exit_if_warned, guarded, one_target, permission, say, stderr
from steelyard.cli.signals import explained
from steelyard.errors import unknown

app = typer.Typer(
    no_args_is_help=True,
    help="Run a federation across machines, over Flower, with keys and TLS.\n\n"
    "[bold]try[/] shows all of it on this machine. A real one takes five commands: at the server, "
    "[bold]new[/] makes its folder and [bold]invite[/] a file for each site; each site takes part with "
    "[bold]join[/] and sends back its public key, which the server's operator [bold]admit[/]s; "
    "[bold]serve[/] runs it.",
)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder that `deploy new` made.")]


@app.command("try")
@guarded
def try_(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PRESET | SPEC.toml] [KEY=VALUE]...", hidden=True),
    ] = None,
    sites: Annotated[int, typer.Option(help="How many sites, each with its share of the spec's data.")] = 3,
    out: Annotated[
        Path | None, typer.Option("--out", help="A new folder for the trial (default: deployments/TIME).")
    ] = None,
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Try a deployment on this machine: real processes, TLS and keys, on loopback.

    Each client of the spec is a site. The record has the numbers of
    `steelyard run SPEC engine=serial`, bit for bit.

    [dim]Example:[/]

        steelyard deploy try robust --sites 3 rounds=5
    """
    with stderr().status("loading") as status:
        from steelyard.flower.trial import try_deployment
        from steelyard.specs.schema import load_spec

        target, overrides = one_target(words)
        overrides.setdefault("data.clients", sites)
        spec = load_spec(target, overrides, permission(trust, status))
        folder = out or Path("deployments") / f"{time.strftime('%Y%m%d-%H%M%S')}-{spec.name}"
    with View() as view:
        result = try_deployment(spec, folder, trust=True, log=view.log, watch=view.show)
    _show_result(result.path, as_json)


@app.command()
@guarded
def new(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder.")],
    sites: Annotated[str, typer.Option(help="The names of the sites, separated by commas.")],
    host: Annotated[str, typer.Option(help="The server's name or address, as the sites see it.")],
    port: Annotated[int, typer.Option(help="The port that the sites connect to.")] = 9443,
    as_json: Json = False,
) -> None:
    """Make the folder of a new deployment: spec, settings, keys, and a README.

    It works as it is, on scikit-learn's digits. For your own federation, change
    [cyan]spec.toml[/] (what is trained), [cyan]deployment.toml[/] (sites, deadlines, shape of
    an example) and, at each site, the code that loads its data.

    [dim]Example:[/]

        steelyard deploy new hospitals --sites oslo,turin --host fl.example.org
    """
    from steelyard.flower.founding import new_deployment

    names = [name.strip() for name in sites.split(",") if name.strip()]
    made = new_deployment(folder, names, host, port)
    text = (
        f"made {made}; its README.md has the next steps, which begin with:\n"
        f"  steelyard deploy invite {folder}  # an invitation for each site\n"
        f"  steelyard deploy serve {folder}   # wait for the sites, then run"
    )
    _tell(text, as_json, folder=str(made), sites=sorted(names))


@app.command()
@guarded
def invite(
    folder: Folder,
    sites: Annotated[
        list[str] | None, typer.Argument(metavar="[SITE]...", help="The sites to invite (default: all).")
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="The folder for the files.")] = Path(),
    trust: Trust = False,
    as_json: Json = False,
) -> None:
    """Write an invitation for each site: the server's address and certificate, and the spec.

    Nothing in it is secret, but the site trusts the certificate in it: send it
    so that the site can be sure that it is from you.
    """
    from steelyard.flower.deployment import INVITATION, invitation_for, load_deployment

    deployment = load_deployment(folder, permission(trust))
    paths = {site: out / f"{site}{INVITATION}" for site in sites or deployment.settings.sites}
    for site, path in paths.items():
        invitation_for(deployment, site).write(path)
    lines = [
        f"wrote {path}; at {site}: steelyard deploy join {path.name} --data site_data:load"
        for site, path in paths.items()
    ]
    _tell("\n".join(lines), as_json, invitations={site: str(path) for site, path in paths.items()})


@app.command()
@guarded
def join(
    invitation: Annotated[Path, typer.Argument(metavar="INVITATION", help="The file from the server.")],
    data: Annotated[
        str | None,
        typer.Option(
            help="`module:function` that is called with the site's name and returns its data, a "
            "steelyard.Client or (inputs, targets)."
        ),
    ] = None,
    home: Annotated[
        Path | None, typer.Option(help="The folder for key, private states and logs (default: NAME-site).")
    ] = None,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads to train with. With 1, the numbers are those of a simulation.")
    ] = 1,
    trust: Trust = False,
    lines: Annotated[bool, typer.Option("--json", help="Print every line as a JSON object.")] = False,
) -> None:
    """Take part as a site: answer the server until this command is stopped.

    The first time, it makes a private key, which never leaves this machine. Send
    the public part (NAME.pub) to the server's operator, who admits it. After a
    failure or a reboot, start the same command again: it continues.

    The server can ask this site to train and to score models, and nothing else.
    No code that comes over the network is run.

    [dim]Example:[/]

        steelyard deploy join oslo.invitation --data site_data:load
    """
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    from steelyard.flower.joining import join as join_federation

    try:
        join_federation(
            invitation, data, home=home, trust=trust, threads=threads, log=print_json if lines else print_line
        )
    except KeyboardInterrupt as interrupt:
        raise explained(interrupt, "the same command joins again.") from None


@app.command()
@guarded
def admit(
    folder: Folder,
    keys: Annotated[
        list[Path], typer.Argument(metavar="KEY.pub...", help="Public keys, named after their sites.")
    ],
    as_json: Json = False,
) -> None:
    """Allow the sites with these public keys to connect, at once if the server is running.

    A site's new key replaces its old one. Make sure that a key is from its site:
    compare the output of `ssh-keygen -lf NAME.pub` by telephone.
    """
    from steelyard.flower import founding
    from steelyard.flower.deployment import load_settings

    known = load_settings(folder).sites
    admitted = [founding.admit(folder, known, key) for key in keys]
    _tell(f"admitted {', '.join(admitted)}", as_json, admitted=admitted)


@app.command()
@guarded
def remove(
    folder: Folder,
    site: Annotated[str, typer.Argument(metavar="SITE", help="The name of the site.")],
    as_json: Json = False,
) -> None:
    """Disconnect a site and refuse its key from now on; to come back, it needs a new key."""
    from steelyard.flower import founding
    from steelyard.flower.deployment import load_settings

    if site not in (known := load_settings(folder).sites):
        raise unknown("site", site, known)
    founding.remove(folder, site)
    _tell(f"removed {site}", as_json, removed=site)


@app.command()
@guarded
def renew(folder: Folder, as_json: Json = False) -> None:
    """Give the server a new key and certificate; sites need not do anything."""
    from steelyard.flower.credentials import SERVER, days_left, renew_server_certificate
    from steelyard.flower.deployment import SECRETS, load_settings

    renew_server_certificate(folder / SECRETS, load_settings(folder).host)
    days = int(days_left(folder / SECRETS / SERVER))
    text = f"the new certificate is valid for {days} days; restart `deploy serve` to use it"
    _tell(text, as_json, days=days)


@app.command()
@guarded
def serve(
    folder: Folder,
    again: Annotated[
        bool, typer.Option("--again", help="Begin a new run; the last one stays as it is.")
    ] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Continue a run although version or environment changed.")
    ] = False,
    proxy: Annotated[
        bool,
        typer.Option(
            "--proxy/--no-proxy",
            help="Start nginx in front of Flower; without it, only this machine can connect.",
        ),
    ] = True,
    trust: Trust = False,
    page: Page = False,
    as_json: Json = False,
) -> None:
    """Wait for the sites, run the spec and record it; continue a run that was interrupted.

    Starts Flower's SuperLink, which only this machine can reach, and nginx in
    front of it, which passes on what sites need and refuses everything else.
    """
    check_page(page)
    with stderr().status("loading"):
        from steelyard.flower.serving import FinishedError
        from steelyard.flower.serving import serve as serve_deployment
    with later_page(page) as start_page:
        try:
            with View(start_page) as view:
                result = serve_deployment(
                    folder,
                    again=again,
                    anyway=anyway,
                    trust=permission(trust),
                    with_proxy=proxy,
                    log=view.log,
                    watch=view.show,
                )
        except FinishedError as finished:
            say(str(finished))
            return
        except KeyboardInterrupt as interrupt:
            raise explained(interrupt, "the same command continues.") from None
        _show_result(result.path, as_json)


@app.command()
@guarded
def status(folder: Folder, as_json: Json = False) -> None:
    """Show which sites are connected, how far the run is, who counted how much, and why."""
    show_status(folder, as_json)


def _tell(text: str, as_json: bool, **values: Any) -> None:
    """Say what was done, in words or as JSON."""
    print(json.dumps(values) if as_json else text)


def _show_result(path: Path | None, as_json: bool) -> None:
    from steelyard.cli import _show_run

    assert path is not None
    _show_run(path, as_json)
    exit_if_warned(path)
