"""Keys and certificates: what is private stays so, and what is not ours is refused."""

import os
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from steelyard.errors import InputError
from steelyard.flower import credentials
from steelyard.flower.credentials import CA, CA_KEY, SECRET, SERVER, SERVER_KEY
from steelyard.tensor_files import write_private


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    old = os.umask(0)  # the modes must not come from the user's settings
    try:
        credentials.make_server_credentials(tmp_path, "fed.example.org")
    finally:
        os.umask(old)
    return tmp_path


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_private_files_are_for_their_owner_only(folder: Path) -> None:
    assert {name: oct(mode(folder / name)) for name in (CA_KEY, SERVER_KEY, SECRET)} == dict.fromkeys(
        (CA_KEY, SERVER_KEY, SECRET), "0o600"
    )
    assert sorted(path.name for path in folder.iterdir()) == sorted((CA, CA_KEY, SERVER, SERVER_KEY, SECRET))
    for public in (CA, SERVER):
        assert b"PRIVATE" not in (folder / public).read_bytes()


def test_the_authority_signs_the_certificate_of_the_server(folder: Path) -> None:
    authority, server = certificate(folder / CA), certificate(folder / SERVER)
    server.verify_directly_issued_by(authority)
    authority.verify_directly_issued_by(authority)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not server.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    key = load_pem_private_key((folder / SERVER_KEY).read_bytes(), None)
    assert key.public_key() == server.public_key()
    assert credentials.days_left(folder / SERVER) == pytest.approx(credentials.SERVER_DAYS, abs=1)


@pytest.mark.parametrize("host", ["fed.example.org", "10.1.2.3", "localhost", "x" * 100])
def test_the_certificate_is_for_the_host(tmp_path: Path, host: str) -> None:
    credentials.make_server_credentials(tmp_path, host)
    found = (
        certificate(tmp_path / SERVER).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    )
    addresses = [str(each) for each in found.get_values_for_type(x509.IPAddress)]
    assert host in [*found.get_values_for_type(x509.DNSName), *addresses]
    assert (host in addresses) is (host == "10.1.2.3")
    assert "127.0.0.1" in addresses


def test_a_renewed_certificate_is_new_and_of_the_same_authority(folder: Path) -> None:
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    credentials.renew_server_certificate(folder, "fed.example.org", days=5)
    changed = {path.name for path in folder.iterdir() if path.read_bytes() != before[path.name]}
    assert changed == {SERVER, SERVER_KEY}
    certificate(folder / SERVER).verify_directly_issued_by(certificate(folder / CA))
    assert credentials.days_left(folder / SERVER) == pytest.approx(5, abs=0.1)
    assert mode(folder / SERVER_KEY) == 0o600
    credentials.renew_server_certificate(folder, "fed.example.org", days=-1)
    assert credentials.days_left(folder / SERVER) < 0


def test_a_site_makes_one_key_and_only_its_public_part_travels(tmp_path: Path) -> None:
    path = tmp_path / "oslo.key"
    credentials.make_site_key(path)
    private, public = path.read_bytes(), (tmp_path / "oslo.pub").read_bytes()
    assert mode(path) == 0o600
    assert public.startswith(b"ecdsa-sha2-nistp384 ")
    assert public.endswith(b" oslo\n")
    assert b"PRIVATE" not in public
    (tmp_path / "oslo.pub").unlink()
    credentials.make_site_key(path)
    assert (path.read_bytes(), (tmp_path / "oslo.pub").read_bytes()) == (private, public)
    key = load_pem_public_key(credentials.public_key_of(tmp_path / "oslo.pub"))
    assert isinstance(key, ec.EllipticCurvePublicKey)


def test_a_name_with_dots_keeps_its_dots(tmp_path: Path) -> None:
    credentials.make_site_key(tmp_path / "oslo.north.key")
    assert (tmp_path / "oslo.north.pub").is_file()


def test_a_damaged_key_of_a_site_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "oslo.key"
    path.write_bytes(b"rubbish")
    with pytest.raises(InputError, match=r"oslo\.key is damaged.*have the new key admitted"):
        credentials.make_site_key(path)
    assert path.read_bytes() == b"rubbish"


OTHER_KEYS = {
    "rsa": lambda: rsa.generate_private_key(65537, 2048),
    "ed25519": ed25519.Ed25519PrivateKey.generate,
}


@pytest.mark.parametrize("kind", OTHER_KEYS)
def test_keys_of_another_kind_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "oslo.pub"
    key = OTHER_KEYS[kind]().public_key()  # type: ignore[operator]
    path.write_bytes(key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
    with pytest.raises(InputError, match=r"oslo\.pub is not"):
        credentials.public_key_of(path)


def private_key() -> bytes:
    key = ec.generate_private_key(credentials.CURVE)
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


@pytest.mark.parametrize(
    "content",
    [b"", b"rubbish", b"\0\xff", b"ecdsa-sha2-nistp384 AAAA oslo", b"ssh-unknown AAAA", private_key()],
)
def test_what_is_no_public_key_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "oslo.pub"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"oslo\.pub is not a public key that `steelyard deploy join` wrote"):
        credentials.public_key_of(path)


def test_a_missing_public_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a public key"):
        credentials.public_key_of(tmp_path / "oslo.pub")


def test_a_private_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_private(path, b"old")
    with pytest.raises(TypeError):
        write_private(path, "text")  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert [*tmp_path.iterdir()] == [path]
    path.chmod(0o644)
    write_private(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", 0o600)


def test_secrets_differ() -> None:
    assert len({credentials.random_secret() for _ in range(100)}) == 100
