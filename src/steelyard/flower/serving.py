"""The server of a deployment: SuperLink, proxy and the round loop. It resumes where it was by itself."""

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from steelyard.errors import InputError, SteelyardError
from steelyard.flower import credentials
from steelyard.flower.building import build_server, check_server, recorded_model_of
from steelyard.flower.channel import POLL_SECONDS, LostError, SuperLinkChannel
from steelyard.flower.deployment import LOGS, RUNS, SETTINGS, STATUS, Deployment, load_deployment
from steelyard.flower.processes import Child, flower_program
from steelyard.flower.proxy import proxy
from steelyard.flower.remote import Patience, RemoteSites
from steelyard.flower.runtime import Address
from steelyard.flower.status import SiteStatus, Status
from steelyard.observers.base import Watching
from steelyard.observers.facts import RunFacts, resumed_after
from steelyard.runs.folder import SPEC, Lock, refuse_links
from steelyard.runs.reader import Run
from steelyard.runs.recorded_model import KEY
from steelyard.runs.resuming import changes, last_state
from steelyard.runs.writer import Recorder
from steelyard.server.observing import Observer
from steelyard.server.result import Result
from steelyard.server.state import FederationState
from steelyard.specs.building import build_observers, parameters_of
from steelyard.specs.gate import Permission
from steelyard.specs.running import recorder_for
from steelyard.specs.schema import Spec
from steelyard.threads import one_thread
from steelyard.types import Round

KEPT = "sites"
RUN_ID, HASH, NAMES = "deployment_run", "deployment_hash", "deployment_sites"
Log = Callable[[str], None]


def serve(
    folder: str | Path,
    *observers: Observer,
    again: bool = False,
    anyway: bool = False,
    trust: Permission = False,
    with_proxy: bool = True,
    log: Log = print,
    watch: Callable[[Status], None] = lambda status: None,
) -> Result:
    """Serve a deployment until its run is finished; goes on with a run that was interrupted.

    `again` begins a new run although the last one is finished or was of another spec. `anyway` resumes in a
    changed environment. `watch` is called with the status several times a second.
    """
    deployment = load_deployment(Path(folder), trust)
    settings, spec = deployment.settings, deployment.spec
    check_server(spec, settings)
    watching = Watching((*observers, *build_observers(spec)))
    lock = Lock(deployment.secrets)
    status = Status(deployment.folder.name, rounds=spec.rounds)
    status.sites = {site: SiteStatus() for site in settings.sites}
    try:
        with ExitStack() as stack:
            opened = open_run(deployment, again, anyway, log)
            status.run, status.round = str(opened.recorder.path), opened.round
            stack.enter_context(watching)
            stack.enter_context(opened.recorder)
            watching.begin(opened.facts(spec))
            stack.enter_context(one_thread())
            reporter = _Reporter(deployment, status, watch)
            stack.callback(reporter.stop)
            channel = stack.enter_context(_open_channel(deployment, with_proxy, reporter, log))
            sites = RemoteSites(
                settings.sites,
                channel,
                deployment.hash,
                opened.id,
                opened.recorder.folder / KEPT,
                Patience(settings.round_seconds, settings.offline_seconds),
                log,
                reporter.watch,
            )
            reporter.phase("waiting for sites")
            wait_for_sites(deployment, sites, log)
            opened.recorder.note(**{KEY: recorded_model_of(spec, settings).to_json()})
            federation = build_server(spec, settings, sites)
            reporter.phase("running")
            sites.rewind(opened.round)
            watchers = (*watching.observers, reporter.observe)
            result = federation.run(*watchers, keeper=opened.recorder, state=opened.state)
            opened.recorder.note(engine=sites.about)
            reporter.phase("finished")
    finally:
        lock.release()
    result.warn()
    return replace(result, path=opened.recorder.path)


class Opened(NamedTuple):
    """A run that can go on."""

    recorder: Recorder
    state: FederationState | None
    id: str
    """By which sites file their private states."""

    @property
    def round(self) -> int:
        return 0 if self.state is None else self.state.round

    def facts(self, spec: Spec) -> RunFacts:
        """What trackers are told before the first round."""
        after = resumed_after(self.recorder, self.state)
        return RunFacts(spec.name, spec.rounds, parameters_of(spec), self.recorder.folder, after)


class FinishedError(InputError):
    """There is nothing left to serve."""


def open_run(deployment: Deployment, again: bool, anyway: bool, log: Log) -> Opened:
    """The last run of a deployment, if it is unfinished, or a new one."""
    parent = deployment.folder / RUNS
    found = sorted(path.parent for path in parent.glob(f"*/{SPEC}")) if parent.is_dir() else []
    if not found or again:
        return _new_run(deployment, parent)
    last = Run(found[-1])
    same = last.meta.get(HASH) == deployment.hash
    if last.meta.get("status") == "finished":
        if same:
            raise FinishedError(
                f"the run in {last.path} is finished; `steelyard show` shows it, and --again begins another."
            )
        return _new_run(deployment, parent)
    if not same:
        raise InputError(
            f"the run in {last.path} is not finished, and the spec has changed since: undo that to go on "
            "with it, or begin another with --again."
        )
    if last.meta.get(NAMES) != " ".join(deployment.settings.sites):
        raise InputError(
            f"the run in {last.path} is not finished, and it keeps the sites that it began with: "
            f"{last.meta.get(NAMES)}; undo that in {SETTINGS}, or begin another with --again."
        )
    return _resume(last, anyway, log)


def _new_run(deployment: Deployment, parent: Path) -> Opened:
    recorder = recorder_for(deployment.spec, parent)
    id = secrets.token_hex(16)
    recorder.note(**{RUN_ID: id, HASH: deployment.hash, NAMES: " ".join(deployment.settings.sites)})
    if not deployment.settings.dealt:
        count, model = len(deployment.settings.sites), deployment.spec.model["name"]
        recorder.note(about=f"{count} sites with data of their own · {model}")
    return Opened(recorder, None, id)


def _resume(run: Run, anyway: bool, log: Log) -> Opened:
    lock = Lock(run.path.resolve())
    try:
        refuse_links(lock.folder)
        if (changed := changes(run)) and not anyway:
            raise InputError(
                f"{run.path} would not end with the numbers of an unbroken run: {', '.join(changed)}; undo "
                "that, or continue with --anyway."
            )
        state, problems = last_state(run, lambda state: _check_commit(run.path, state))
        recorder = Recorder(run.path, after=0 if state is None else state.round, lock=lock)
    except BaseException:
        lock.release()
        raise
    for text in (*changed, *problems):
        log(text)
    log(f"resuming {run.path} after round {0 if state is None else state.round}")
    return Opened(recorder, state, str(run.meta[RUN_ID]))


def _check_commit(run: Path, state: FederationState) -> None:
    if state.round and not (run / KEPT / f"answered-{state.round}.json").is_file():
        raise InputError(f"{run / KEPT} does not say which sites had answered by round {state.round}.")


@contextmanager
def _open_channel(
    deployment: Deployment, with_proxy: bool, reporter: "_Reporter", log: Log
) -> Iterator[SuperLinkChannel]:
    """SuperLink and proxy, which are started again if they die, and the connection to them."""
    settings, logs = deployment.settings, deployment.folder / LOGS
    children = [_superlink(deployment, logs)]
    front = proxy(deployment.secrets, logs, settings.port, settings.internal_port) if with_proxy else None
    if front is not None:
        children.append(front)
        log(f"sites connect to {settings.host}:{settings.port} through the proxy")
    else:
        why = "nginx is not installed (Debian: apt install nginx)" if with_proxy else "the proxy is off"
        log(f"only this machine can connect, at 127.0.0.1:{settings.internal_port}: {why}")
    left = credentials.days_left(deployment.secrets / credentials.SERVER)
    if left < credentials.RENEW_DAYS:
        log(f"the server's certificate ends in {left:.0f} days: steelyard deploy renew {deployment.folder}")

    def tend() -> None:
        for child in children:
            if child.has_ended and time.monotonic() - child.started > 1.0:
                if child.started:
                    log(f"{child.name} ended ({child.ending()}); starting it again")
                child.start()
        reporter.refresh()

    address = Address(f"127.0.0.1:{settings.internal_port}", deployment.secrets / credentials.CA)
    secret = (deployment.secrets / credentials.SECRET).read_bytes()
    channel = SuperLinkChannel(address, secret, deployment.admitted, check=tend)
    try:
        channel.reopen()
        yield channel
    finally:
        channel.close()
        for child in reversed(children):
            child.stop()


def _superlink(deployment: Deployment, logs: Path) -> Child:
    folder = deployment.secrets
    command: list[str | Path] = [
        *(flower_program("flower-superlink"), "--host", "127.0.0.1"),
        *("--port", str(deployment.settings.internal_port)),
        *("--ssl-ca-certfile", folder / credentials.CA, "--ssl-certfile", folder / credentials.SERVER),
        *("--ssl-keyfile", folder / credentials.SERVER_KEY, "--enable-supernode-auth"),
        *("--isolation", "process", "--superexec-auth-secret-file", folder / credentials.SECRET),
        *("--database", folder / "superlink.sqlite", "--disable-runtime-dependency-installation"),
    ]
    return Child("SuperLink", command, logs / "superlink.log", {"FLWR_HOME": str(folder / "flower")})


def wait_for_sites(deployment: Deployment, sites: RemoteSites, log: Log) -> None:
    """Wait until enough sites are connected; says which ones are missing, whenever that changes."""
    settings, said = deployment.settings, None
    enough = settings.min_sites or len(settings.sites)
    end = time.monotonic() + settings.start_seconds
    while True:
        try:
            connected = sites.connected().keys() & {*settings.sites}
        except LostError:
            sites.presence.reopen()
            continue
        missing = sorted({*settings.sites} - connected)
        if len(connected) >= enough:
            log(f"{len(connected)} of {len(settings.sites)} sites are connected; the run begins")
            return
        if missing != said:
            said = missing
            log(f"waiting for {', '.join(_with_hint(deployment, each) for each in missing)}")
        if time.monotonic() > end:
            raise SteelyardError(
                f"after {settings.start_seconds:g} s, {', '.join(missing)} had not connected; {enough} sites "
                "are needed (min_sites)."
            )
        time.sleep(POLL_SECONDS)


def _with_hint(deployment: Deployment, site: str) -> str:
    return site if deployment.public_key_file(site).is_file() else f"{site} (not admitted)"


class _Reporter:
    """Keeps the status file up to date."""

    def __init__(self, deployment: Deployment, status: Status, watch: Callable[[Status], None]) -> None:
        self.deployment, self.status, self._watch = deployment, status, watch
        self.path = deployment.folder / STATUS
        self._due = 0.0

    def phase(self, name: str) -> None:
        self.status.phase = name
        self._due = 0.0
        self.refresh()

    def watch(self, connected: set[str], waiting: set[str]) -> None:
        self.status.see(connected, self.deployment.admitted())
        self.status.wait_for(waiting)
        self.refresh()

    def observe(self, round: Round) -> None:
        self.status.complete(round)
        self._due = 0.0
        self.refresh()

    def refresh(self) -> None:
        self._watch(self.status)
        if time.monotonic() >= self._due:
            self.status.write(self.path)
            self._due = time.monotonic() + 1.0

    def stop(self) -> None:
        if self.status.phase != "finished":
            self.status.phase = "stopped"
            self.status.write(self.path)
