"""The folder of a deployment at the server, and the invitation that a site gets."""

import hashlib
import json
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator, model_validator

import steelyard
from steelyard.errors import InputError, unknown
from steelyard.flower import credentials
from steelyard.specs.gate import Permission
from steelyard.specs.schema import Section, Spec, load_spec
from steelyard.types import ClientId

SETTINGS, SPEC_FILE = "deployment.toml", "spec.toml"
SECRETS, SITES, RUNS, LOGS, STATUS = "server", "sites", "runs", "logs", "status.json"
INVITATION = ".invitation"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
_HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,252}")
Seconds = Annotated[float, Field(gt=0, le=1e8)]
"""Flower cannot count to dates that are further away."""


class Settings(Section):
    """What `deployment.toml` says."""

    host: str
    """The name or address under which sites reach the server."""
    port: int = Field(9443, ge=1, le=65535)
    """The port that sites connect to: the proxy's."""
    internal_port: int = Field(9444, ge=1, le=65535)
    """The port of the SuperLink on the server's loopback, behind the proxy."""
    sites: list[str] = Field(min_length=1)
    min_sites: int | None = Field(None, ge=1)
    """The run begins when so many sites are connected; by default all."""
    start_seconds: Seconds = 86400.0
    """How long to wait for them, before the server gives up and says who is missing."""
    round_seconds: Seconds = 600.0
    """The deadline of a round, if the spec sets none."""
    offline_seconds: Seconds = 120.0
    """How long a round waits for a site that is not connected."""
    dealt: bool = False
    """Sites hold the clients that the spec deals from its data set, for trials. Otherwise each site loads
    data of its own, and the next two settings are needed."""
    input_shape: list[Annotated[int, Field(ge=1)]] | None = None
    """The shape of one example, for models that the spec names; and, if the server has no test set, for
    metrics with sums for each output, such as R2Score."""
    classes: int | None = Field(None, ge=1)
    """The number of outputs of the model; 1 for numbers."""
    test: str | None = None
    """The server's own test set: `module:function` that returns (inputs, targets)."""
    validation: str | None = None
    """The server's own set to choose the best model by, like `test`; in place of the spec's `validation`."""

    @field_validator("host")
    @classmethod
    def _is_host(cls, host: str) -> str:
        if not _HOST.fullmatch(host):
            raise InputError(f"{host!r} is no name of a host, and no IPv4 address")
        return host

    @field_validator("sites")
    @classmethod
    def _distinct(cls, sites: list[str]) -> list[str]:
        for site in sites:
            if not _NAME.fullmatch(site):
                raise InputError(f"{site!r} is no name for a site: use letters, digits and . _ -")
        if len(set(sites)) < len(sites):
            raise InputError("every site needs a name of its own")
        return sorted(sites)

    @model_validator(mode="after")
    def _complete(self) -> "Settings":
        if self.port == self.internal_port:
            raise InputError("port and internal_port must differ")
        if (self.min_sites or 1) > len(self.sites):
            raise InputError(f"min_sites is {self.min_sites}, but there are {len(self.sites)} sites")
        return self


@dataclass(frozen=True)
class Deployment:
    """A deployment at the server."""

    folder: Path
    settings: Settings
    spec: Spec

    @property
    def secrets(self) -> Path:
        return self.folder / SECRETS

    @property
    def hash(self) -> str:
        return spec_hash(self.spec, self.settings.input_shape, self.settings.classes)

    @property
    def spec_of_sites(self) -> str:
        """The spec as TOML, without the observers, which are the server's own."""
        return self.spec.model_copy(update={"observers": []}).to_toml()

    def public_key_file(self, site: ClientId) -> Path:
        return self.folder / SITES / f"{site}.pub"

    def admitted(self) -> dict[ClientId, bytes]:
        """The public keys of the sites that are admitted now."""
        files = {site: self.public_key_file(site) for site in self.settings.sites}
        return {site: credentials.public_key_of(file) for site, file in files.items() if file.is_file()}

    def check_site(self, site: ClientId) -> None:
        if site not in self.settings.sites:
            raise unknown("site", site, self.settings.sites)


def load_deployment(folder: Path, trust: Permission = False) -> Deployment:
    """The deployment in a folder."""
    settings = load_settings(folder)
    if (place := str(folder.resolve())) not in sys.path:
        sys.path.append(place)  # for code of the user's own that the spec names
    return Deployment(folder.resolve(), settings, load_spec(folder / SPEC_FILE, trust=trust))


def load_settings(folder: Path) -> Settings:
    """What `deployment.toml` in a folder says; imports no code."""
    path = folder / SETTINGS
    try:
        table = tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise InputError(f"{folder} is no deployment: `steelyard deploy new {folder}` makes one.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}.") from None
    return checked(table, path)


def checked(table: Mapping[str, Any], where: Path | str) -> Settings:
    try:
        return Settings.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "extra_forbidden":
            raise unknown("key", key, Settings.model_fields, str(where)) from None
        cause = first.get("ctx", {}).get("error", first["msg"].lower())
        raise InputError(f"{where}: {key and key + ': '}{str(cause).removesuffix('.')}.") from None


def spec_hash(spec: Spec, input_shape: list[int] | None, classes: int | None) -> str:
    """What server and site must have in common to compute the same."""
    table = spec.model_dump(exclude={"observers"})
    table |= {"engine": None, "about": "", "spill": False, "round_seconds": None}
    content = json.dumps([table, input_shape, classes], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Invitation:
    """What a site must know; nothing in it is secret."""

    site: ClientId
    deployment: str
    address: str
    """host:port."""
    ca: str
    """The certificate of the authority that signed the server's, as PEM."""
    spec: str
    """As TOML."""
    hash: str
    """Of the spec."""
    dealt: bool
    input_shape: list[int] | None
    classes: int | None
    version: str = steelyard.__version__

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), indent=2) + "\n", "utf-8")


def invitation_for(deployment: Deployment, site: ClientId, address: str | None = None) -> Invitation:
    deployment.check_site(site)
    settings = deployment.settings
    return Invitation(
        site,
        deployment.folder.name,
        address or f"{settings.host}:{settings.port}",
        (deployment.secrets / credentials.CA).read_text("ascii"),
        deployment.spec_of_sites,
        deployment.hash,
        settings.dealt,
        settings.input_shape,
        settings.classes,
    )


def read_invitation(path: Path) -> Invitation:
    """An invitation that somebody sent: its form is checked, and that its hash is that of its spec."""
    try:
        invitation = Invitation(**json.loads(path.read_text("utf-8")))
        texts = [invitation.site, invitation.address, invitation.ca, invitation.spec, invitation.hash]
        if not all(isinstance(text, str) for text in texts) or not _NAME.fullmatch(invitation.site):
            raise ValueError("a field has the wrong type")
    except FileNotFoundError:
        raise InputError(f"there is no file {path}.") from None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is not an invitation that `deploy invite` wrote: {error}.") from None
    return invitation
