"""Keys and certificates: a certificate authority and a server certificate at the server, a key at each site.

Private keys are made where they are used, have mode 0600 and never leave; what travels is public.
"""

import ipaddress
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_ssh_private_key,
    load_ssh_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from steelyard.errors import InputError
from steelyard.tensor_files import write_private

CURVE = ec.SECP384R1()
CA_DAYS, SERVER_DAYS = 3650, 397
RENEW_DAYS = 30
"""A server certificate that ends in fewer days is worth a warning."""
CA, CA_KEY, SERVER, SERVER_KEY, SECRET = "ca.pem", "ca.key", "server.pem", "server.key", "secret"


def make_server_credentials(folder: Path, host: str) -> None:
    """A new certificate authority, and a certificate for the server's host name."""
    key = ec.generate_private_key(CURVE)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"steelyard deployment {host}"[:64])])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    authority = (
        _certificate(name, name, key.public_key(), CA_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    write_private(folder / CA_KEY, _pem(key))
    (folder / CA).write_bytes(authority.public_bytes(Encoding.PEM))
    write_private(folder / SECRET, random_secret())
    renew_server_certificate(folder, host)


def renew_server_certificate(folder: Path, host: str, days: float = SERVER_DAYS) -> None:
    """A new key and certificate for the server, signed by the authority that the sites already know."""
    authority = x509.load_pem_x509_certificate((folder / CA).read_bytes())
    issuer = load_pem_private_key((folder / CA_KEY).read_bytes(), None)
    assert isinstance(issuer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(CURVE)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host[:64])])
    names: list[x509.GeneralName] = [
        _general_name(each) for each in dict.fromkeys((host, "localhost", "127.0.0.1"))
    ]
    certificate = (
        _certificate(subject, authority.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(issuer, hashes.SHA256())
    )
    write_private(folder / SERVER_KEY, _pem(key))
    (folder / SERVER).write_bytes(certificate.public_bytes(Encoding.PEM))


def days_left(certificate: Path) -> float:
    """Days until a certificate ends; negative if it has ended."""
    end = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    return (end - datetime.now(UTC)).total_seconds() / 86400


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1, days=max(0.0, -days)))
        .not_valid_after(now + timedelta(days=days))
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def make_site_key(path: Path) -> None:
    """A key for a site, unless it has one; the public part is written beside it as `.pub`."""
    if not path.is_file():
        key = ec.generate_private_key(CURVE)
        write_private(path, key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    try:
        private = load_ssh_private_key(path.read_bytes(), None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path} is damaged: {error}; remove it, and have the new key admitted.") from None
    public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public + b" " + path.stem.encode() + b"\n")


def public_key_of(path: Path) -> bytes:
    """The public key in a `.pub` file, in the form that Flower wants."""
    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise InputError(f"{path} is not a public key that `steelyard deploy join` wrote: {error}.") from None
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise InputError(f"{path} is not an elliptic-curve key; send the file that `deploy join` wrote.")
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def random_secret() -> bytes:
    """For two processes of one machine that must know each other."""
    return secrets.token_bytes(32)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
