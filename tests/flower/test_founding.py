"""A new deployment: what is in its folder, and whose keys are admitted."""

import stat
import tomllib
from pathlib import Path

import pytest

from steelyard.errors import InputError
from steelyard.flower import credentials
from steelyard.flower.building import check_server
from steelyard.flower.deployment import load_deployment
from steelyard.flower.founding import admit, new_deployment, new_trial
from steelyard.specs.schema import load_spec

SITES = ["oslo", "bergen"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return new_deployment(tmp_path / "fed", SITES, "fed.example.org", 9500)


def public_key(folder: Path, site: str) -> Path:
    folder.mkdir(exist_ok=True)
    credentials.make_site_key(folder / f"{site}.key")
    return folder / f"{site}.pub"


def test_a_new_deployment_has_everything_and_can_be_loaded(folder: Path) -> None:
    found = {path.name for path in folder.iterdir()}
    assert found >= {
        "deployment.toml",
        "spec.toml",
        "README.md",
        "server",
        "sites",
        "logs",
        "systemd",
        ".gitignore",
    }
    assert {path.name for path in (folder / "systemd").iterdir()} == {"server.service", "site.service"}
    deployment = load_deployment(folder)
    settings = deployment.settings
    assert (settings.host, settings.port, settings.internal_port) == ("fed.example.org", 9500, 9501)
    assert settings.sites == sorted(SITES)
    check_server(deployment.spec, settings)
    assert deployment.admitted() == {}


def test_no_word_of_a_template_is_left_and_its_python_is_python(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file() and path.parent.name != "server":
            text = path.read_text("utf-8")
            assert not [
                word for word in ("@NAME@", "@HOST@", "@SITES@", "@FOLDER@", "@PORT@") if word in text
            ], path
            if path.suffix == ".py":
                compile(text, str(path), "exec")
            if path.suffix == ".toml":
                tomllib.loads(text)


def test_the_folder_with_the_secrets_is_for_its_owner_and_not_for_git(folder: Path) -> None:
    assert stat.S_IMODE((folder / "server").stat().st_mode) == 0o700
    assert "/server" in (folder / ".gitignore").read_text().splitlines()
    private = [path for path in folder.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert {path.parent for path in private} == {folder / "server"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in private} == {0o600}


@pytest.mark.parametrize(
    ("sites", "host", "port", "words"),
    [
        ([], "h", 9443, "sites: "),
        (["a/b"], "h", 9443, "sites: 'a/b' is no name"),
        (["a", "a"], "h", 9443, "a name of its own"),
        (["a"], "", 9443, "host: "),
        (["a"], "bücher.example", 9443, "host: "),
        (["a"], "h", 0, "port: "),
        (["a"], "h", 65535, "internal_port: "),
    ],
)
def test_what_cannot_be_a_deployment_leaves_no_folder(
    tmp_path: Path, sites: list[str], host: str, port: int, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        new_deployment(tmp_path / "fed", sites, host, port)
    assert not (tmp_path / "fed").exists()


def test_a_folder_that_is_not_empty_is_left_alone(folder: Path) -> None:
    before = (folder / "server" / credentials.CA_KEY).read_bytes()
    with pytest.raises(InputError, match="exists and is not empty"):
        new_deployment(folder, SITES, "h")
    assert (folder / "server" / credentials.CA_KEY).read_bytes() == before
    with pytest.raises(InputError, match="exists and is not empty"):
        new_deployment(folder / "deployment.toml", SITES, "h")


def test_a_trial_deals_the_clients_of_its_spec(tmp_path: Path) -> None:
    spec = load_spec(None, {"data.clients": 3, "rounds": 2})
    folder = new_trial(tmp_path / "trial", spec, ["2", "0", "1"], 9500, 9600)
    deployment = load_deployment(folder)
    assert deployment.settings.dealt
    assert deployment.settings.sites == ["0", "1", "2"]
    assert deployment.spec == spec


def test_a_site_is_admitted_by_the_name_of_its_file(folder: Path, tmp_path: Path) -> None:
    deployment = load_deployment(folder)
    path = public_key(tmp_path / "mail", "oslo")
    assert admit(folder, deployment.settings.sites, path) == "oslo"
    assert deployment.admitted() == {"oslo": credentials.public_key_of(path)}
    path.with_suffix(".key").unlink()
    new = public_key(tmp_path / "mail", "oslo")
    admit(folder, deployment.settings.sites, new)
    assert deployment.admitted() == {"oslo": credentials.public_key_of(new)}, "a new key replaces the old one"
    assert [path.name for path in (folder / "sites").iterdir()] == ["oslo.pub"]


def test_unknown_names_and_other_files_are_not_admitted(folder: Path, tmp_path: Path) -> None:
    for name in ("tromso", "..", "oslo.bergen"):
        with pytest.raises(InputError, match="is named after no site: the sites are oslo, bergen"):
            admit(folder, SITES, public_key(tmp_path / "mail", name))
    private = tmp_path / "mail" / "oslo.key"
    credentials.make_site_key(private)
    with pytest.raises(InputError, match="is not a public key"):
        admit(folder, SITES, private)
    assert [*(folder / "sites").iterdir()] == []


def test_the_key_of_another_site_is_not_admitted(folder: Path, tmp_path: Path) -> None:
    oslo = public_key(tmp_path / "mail", "oslo")
    admit(folder, SITES, oslo)
    copy = tmp_path / "mail" / "bergen.pub"
    copy.write_bytes(oslo.read_bytes().replace(b" oslo", b" bergen"))
    with pytest.raises(InputError, match="is the key of oslo: every site makes a key of its own"):
        admit(folder, SITES, copy)
    assert [path.name for path in (folder / "sites").iterdir()] == ["oslo.pub"]
