"""The settings of a deployment, and the invitation that a site gets."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from steelyard.errors import InputError
from steelyard.flower.building import check_server, load_invited_spec
from steelyard.flower.deployment import (
    Deployment,
    Invitation,
    Settings,
    checked,
    invitation_for,
    load_deployment,
    read_invitation,
    spec_hash,
)
from steelyard.flower.founding import new_deployment
from steelyard.specs.schema import load_spec

GOOD: dict[str, Any] = {
    "host": "fed.example.org",
    "sites": ["oslo", "bergen"],
    "input_shape": [4],
    "classes": 3,
}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    return load_deployment(
        new_deployment(tmp_path_factory.mktemp("new") / "fed", ["oslo", "bergen"], "h.org")
    )


def test_good_settings_have_defaults_and_sorted_sites() -> None:
    found = checked(GOOD, "deployment.toml")
    assert (found.sites, found.port, found.internal_port) == (["bergen", "oslo"], 9443, 9444)
    assert checked({**GOOD, "round_seconds": 5}, "x").round_seconds == 5.0


BAD: list[tuple[dict[str, Any], str]] = [
    ({"host": None}, "host: "),
    ({"host": ""}, "host: '' is no name of a host"),
    ({"host": "a b"}, "host: 'a b' is no name"),
    ({"host": "bücher.example"}, "host: 'bücher.example' is no name"),
    ({"host": "h.org\n"}, "host: "),
    ({"host": "::1"}, "host: '::1' is no name of a host, and no IPv4 address"),
    ({"host": "x" * 254}, "host: "),
    ({"port": 0}, "port: input should be greater"),
    ({"port": 65536}, "port: input should be less"),
    ({"port": "9443"}, "port: input should be a valid integer"),
    ({"port": True}, "port: "),
    ({"internal_port": 9443}, "port and internal_port must differ"),
    ({"sites": []}, "sites: list should have at least 1 item"),
    ({"sites": "oslo"}, "sites: input should be a valid list"),
    ({"sites": [7]}, "sites.0: input should be a valid string"),
    ({"sites": ["oslo", "oslo"]}, "sites: every site needs a name of its own"),
    *(
        ({"sites": [name]}, f"sites: {name!r} is no name")
        for name in ("", "..", "a/b", "-x", "a\n", "ü", "x" * 62)
    ),
    ({"min_sites": 0}, "min_sites: input should be greater"),
    ({"min_sites": 3}, "min_sites is 3, but there are 2 sites"),
    ({"round_seconds": 0}, "round_seconds: "),
    ({"round_seconds": float("inf")}, "round_seconds: "),
    ({"start_seconds": float("nan")}, "start_seconds: "),
    ({"offline_seconds": -1.0}, "offline_seconds: "),
    ({"input_shape": [0]}, "input_shape.0: "),
    ({"input_shape": ["4"]}, "input_shape.0: "),
    ({"classes": 0}, "classes: "),
    ({"dealt": "yes"}, "dealt: "),
    ({"test": 7}, "test: "),
    ({"validation": 7}, "validation: "),
]


@pytest.mark.parametrize(("change", "words"), BAD)
def test_a_bad_setting_is_refused_in_one_sentence(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        checked({**GOOD, **change}, "fed/deployment.toml")
    text = str(error.value)
    assert text.startswith(f"fed/deployment.toml: {words}")
    assert text.endswith(".")
    assert "\n" not in text
    assert len(text) < 400


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match=r"unknown key 'prot' of x.toml: did you mean 'port'\?"):
        checked({**GOOD, "prot": 1}, "x.toml")


def test_every_setting_has_a_bad_value_here() -> None:
    assert {key for change, _ in BAD for key in change} == {*Settings.model_fields}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("deployment.toml", None, "is no deployment: `steelyard deploy new"),
        ("deployment.toml", b"host = ", r"cannot read .*deployment\.toml: "),
        ("deployment.toml", b"\xff", r"cannot read .*deployment\.toml: "),
        ("deployment.toml", b"host = 3", r"deployment\.toml: host: "),
        ("spec.toml", b"rounds = -1", "rounds"),
        ("spec.toml", b"rounds = ", r"spec\.toml"),
        ("spec.toml", None, r"spec\.toml"),
    ],
)
def test_a_folder_that_cannot_be_read_is_refused(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    (tmp_path / "deployment.toml").write_text(tomli_w.dumps(GOOD))
    (tmp_path / "spec.toml").write_text("rounds = 2\n")
    (tmp_path / name).unlink() if content is None else (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words):
        load_deployment(tmp_path)


def test_what_could_not_run_is_refused_before_it_starts() -> None:
    settings = checked(GOOD, "x")
    with pytest.raises(InputError, match="clients_per_round is 3, but there are 2 sites"):
        check_server(load_spec(None, {"clients_per_round": 3}), settings)
    with pytest.raises(InputError, match="but the sites are bergen, oslo"):
        check_server(load_spec(None), checked({**GOOD, "dealt": True}, "x"))


def test_the_hash_is_of_what_both_sides_compute(deployment: Deployment) -> None:
    spec = deployment.spec
    found = spec_hash(spec, [4], 3)
    assert found == spec_hash(spec.model_copy(update={"about": "x", "round_seconds": 3.0}), [4], 3)
    others = [
        spec_hash(spec.model_copy(update={"seed": 7}), [4], 3),
        spec_hash(spec, [5], 3),
        spec_hash(spec, [4], 2),
    ]
    assert len({found, *others}) == 4


def test_the_observers_of_the_server_are_no_business_of_the_sites(deployment: Deployment) -> None:
    named = [{"name": "mlflow", "tracking_uri": "http://user:password@h.org", "experiment": "x"}]
    watched = replace(deployment, spec=deployment.spec.model_copy(update={"observers": named}))
    assert watched.hash == deployment.hash
    assert invitation_for(watched, "oslo") == invitation_for(deployment, "oslo")


def test_an_invitation_holds_no_secret_and_comes_back_as_it_was(
    deployment: Deployment, tmp_path: Path
) -> None:
    invitation, path = invitation_for(deployment, "oslo"), tmp_path / "oslo.invitation"
    invitation.write(path)
    assert read_invitation(path) == invitation
    assert invitation.address == "h.org:9443"
    text = path.read_text()
    assert "PRIVATE" not in text
    assert "BEGIN CERTIFICATE" in text
    for secret in ("secret", "ca.key", "server.key"):
        content = (deployment.secrets / secret).read_bytes()
        assert content.hex() not in text
        assert all(line.decode("latin-1") not in text for line in content.splitlines()[1:-1] if len(line) > 8)
    (tmp_path / "home").mkdir()
    assert load_invited_spec(invitation, tmp_path / "home", False) == deployment.spec


def test_only_sites_of_the_deployment_are_invited(deployment: Deployment) -> None:
    with pytest.raises(InputError, match=r"unknown site 'olso': did you mean 'oslo'\?"):
        invitation_for(deployment, "olso")


@pytest.mark.parametrize(
    "change",
    [
        {"spec": "rounds = 3\n"},
        {"hash": "0" * 32},
        {"input_shape": [65]},
        {"input_shape": "x"},
        {"classes": 11},
        {"classes": None},
    ],
)
def test_an_edited_invitation_is_refused(
    deployment: Deployment, tmp_path: Path, change: dict[str, Any]
) -> None:
    path = tmp_path / "oslo.invitation"
    table = vars(invitation_for(deployment, "oslo")) | change
    path.write_text(json.dumps(table))
    with pytest.raises(InputError, match=r"invitation for oslo does not fit its own spec.*ask for a new one"):
        load_invited_spec(read_invitation(path), tmp_path, False)


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "null", "{}", "7", "[" * 100_000, '{"site": "oslo"}'),
        *({"site": each} for each in (7, None, "", "../x", "a/b", "oslo\n")),
        *({name: 7} for name in ("address", "ca", "spec", "hash")),
        {"more": 1},
    ],
)
def test_what_is_no_invitation_is_refused(deployment: Deployment, tmp_path: Path, content: Any) -> None:
    path = tmp_path / "oslo.invitation"
    table: dict[str, Any] = vars(invitation_for(deployment, "oslo"))
    path.write_text(content if isinstance(content, str) else json.dumps(table | content))
    with pytest.raises(InputError, match=r"oslo\.invitation is not an invitation that `deploy invite` wrote"):
        read_invitation(path)


def test_a_missing_invitation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no file"):
        read_invitation(tmp_path / "x")


def test_an_invitation_has_no_other_fields() -> None:
    assert {*Invitation.__dataclass_fields__} == {
        *("site", "deployment", "address", "ca", "spec", "hash", "dealt", "input_shape", "classes", "version")
    }
