"""A whole deployment on this machine: real processes, loopback, TLS and keys."""

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from steelyard.errors import SteelyardError
from steelyard.flower.deployment import INVITATION, invitation_for, load_deployment
from steelyard.flower.founding import admit, new_trial
from steelyard.flower.joining import prepare, site_home
from steelyard.flower.processes import Child, free_port
from steelyard.flower.serving import serve
from steelyard.flower.status import Status
from steelyard.server.observing import Observer
from steelyard.server.result import Result
from steelyard.specs.building import build
from steelyard.specs.schema import Spec

Log = Callable[[str], None]


def try_deployment(
    spec: Spec,
    folder: Path,
    *observers: Observer,
    trust: bool = False,
    log: Log = print,
    watch: Callable[[Status], None] = lambda status: None,
) -> Result:
    """Run a spec as a deployment in `folder`: each client that the spec deals is a site."""
    made = make_trial(spec, folder)
    with ExitStack() as stack:
        sites = [stack.enter_context(site_process(made, name, trust)) for name in site_names(made)]

        def check(status: Status) -> None:
            for site in sites:
                if site.has_ended:
                    last = site.said().strip().splitlines()[-1:] or [site.ending()]
                    raise SteelyardError(f"{site.name} ended: {last[0]} (its log is {site.log})")
            watch(status)

        return serve(made, *observers, trust=trust, with_proxy=False, log=log, watch=check)


def make_trial(spec: Spec, folder: Path) -> Path:
    """The folder of a trial, with all sites invited and admitted."""
    ids = build(spec).ids
    internal = free_port()
    made = new_trial(folder, spec, ids, free_port(), internal)
    deployment = load_deployment(made, trust=True)
    for site in deployment.settings.sites:
        invitation = made / f"{site}{INVITATION}"
        invitation_for(deployment, site, f"localhost:{internal}").write(invitation)
        _, _, public_key = prepare(invitation)
        admit(made, deployment.settings.sites, public_key)
    return made


def site_names(folder: Path) -> Sequence[str]:
    return sorted(path.name.removesuffix(INVITATION) for path in folder.glob(f"*{INVITATION}"))


def site_process(folder: Path, site: str, trust: bool = False, data: str | None = None) -> Child:
    """`steelyard deploy join` for one site of a trial."""
    invitation = folder / f"{site}{INVITATION}"
    command: list[str | Path] = [sys.executable, "-m", "steelyard", "deploy", "join", invitation]
    command += ["--trust"] if trust else []
    command += ["--data", data] if data else []
    log = site_home(invitation, site) / "logs" / "join.log"
    return Child(f"site {site}", command, log)
