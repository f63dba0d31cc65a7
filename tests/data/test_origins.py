import gzip
import io
import stat
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from steelyard.data.fetching.archives import unpack_tar
from steelyard.data.origins import Address, Archive, Debian, Download, Npm, Origin

CONTENTS = {"a.bin": b"alpha" * 100, "b.bin": b"beta" * 100}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test server is here, whatever proxy the computer is set to use."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def get(origin: Origin, tmp_path: Path) -> dict[str, bytes]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    return origin.fetch(list(CONTENTS), scratch)


def fill(folder: Path, contents: Mapping[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)


def tgz(path: Path, contents: Mapping[str, bytes], folder: str) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, to be filled with fake programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def program(folder: Path, name: str, code: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\nimport os, shutil, sys, tarfile\n{code}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    folder = tmp_path / "www"
    folder.mkdir()
    http = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{http.server_address[1]}/", folder
    http.shutdown()
    thread.join()
    http.server_close()


def test_a_download_takes_gzipped_files_from_a_server(tmp_path: Path, server: tuple[str, Path]) -> None:
    url, folder = server
    fill(folder, {f"{name}.gz": gzip.compress(content) for name, content in CONTENTS.items()})
    assert get(Download(url), tmp_path) == CONTENTS


def test_a_download_says_which_file_is_missing(tmp_path: Path, server: tuple[str, Path]) -> None:
    url, _ = server
    with pytest.raises(OSError, match=rf"^HTTP status 404 for {url}a\.bin\.gz$"):
        get(Download(url), tmp_path)


def test_a_download_without_a_connection_has_a_short_reason(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"^no connection \(ConnectionError\)$"):
        get(Download("http://127.0.0.1:1/"), tmp_path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
def test_an_address_has_the_one_file_under_any_name(
    tmp_path: Path, server: tuple[str, Path], pack: Callable[[bytes], bytes]
) -> None:
    url, folder = server
    fill(folder, {"input.txt": pack(b"to be")})
    assert Address(f"{url}input.txt").fetch(["play.txt"], tmp_path) == {"play.txt": b"to be"}
    with pytest.raises(OSError, match="404"):
        Address(f"{url}output.txt").fetch(["play.txt"], tmp_path)


def test_an_archive_is_downloaded_and_unpacked(tmp_path: Path, server: tuple[str, Path]) -> None:
    url, folder = server
    tgz(folder / "toy.tar.gz", CONTENTS, "toy-batches")
    assert get(Archive(f"{url}toy.tar.gz", "toy-batches"), tmp_path) == CONTENTS


def test_a_truncated_archive_is_refused(tmp_path: Path, server: tuple[str, Path]) -> None:
    url, folder = server
    path = tgz(folder / "toy.tar.gz", CONTENTS, "toy-batches")
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(OSError, match=r"toy\.tar\.gz cannot be unpacked"):
        get(Archive(f"{url}toy.tar.gz", "toy-batches"), tmp_path)


def test_npm_packs_the_wanted_version(tmp_path: Path, commands: Path) -> None:
    package = tgz(tmp_path / "toy.tgz", CONTENTS, "package/data")
    check = "assert sys.argv[1:3] == ['pack', 'toy@1.0.0'] and '--ignore-scripts' in sys.argv"
    program(commands, "npm", f"{check}\nshutil.copy({str(package)!r}, 'toy-1.0.0.tgz')")
    assert get(Npm("toy@1.0.0", "package/data"), tmp_path) == CONTENTS


def test_npm_content_can_be_converted(
    tmp_path: Path, commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lower(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
        return {name: (folder / name.upper()).read_bytes() for name in names}

    monkeypatch.setitem(sys.modules, "readers", SimpleNamespace(lower=lower))
    shouted = {name.upper(): content for name, content in CONTENTS.items()}
    package = tgz(tmp_path / "toy.tgz", shouted, "package")
    program(commands, "npm", f"shutil.copy({str(package)!r}, 'toy-1.0.0.tgz')")
    assert get(Npm("toy@1.0.0", "package", "readers:lower"), tmp_path) == CONTENTS


def test_npm_gives_its_own_reason(tmp_path: Path, commands: Path) -> None:
    code = "sys.exit('npm error code E404\\nnpm error 404 Not Found\\nsee the log')"
    program(commands, "npm", code)
    with pytest.raises(OSError, match=r"^npm error code E404$"):
        get(Npm("toy@1.0.0", "package"), tmp_path)


def test_an_archive_that_reaches_outside_is_refused(tmp_path: Path, commands: Path) -> None:
    package = tgz(tmp_path / "toy.tgz", CONTENTS | {"../../../escaped": b"!"}, "package")
    with pytest.raises(OSError, match="cannot be unpacked"):
        unpack_tar(package, tmp_path / "one" / "two")
    program(commands, "npm", f"shutil.copy({str(package)!r}, 'toy-1.0.0.tgz')")
    with pytest.raises(OSError, match="outside"):
        get(Npm("toy@1.0.0", "package"), tmp_path)
    assert list(tmp_path.rglob("escaped")) == []


def test_an_installed_debian_package_needs_no_command(tmp_path: Path, commands: Path) -> None:
    packed = {f"{name}.gz": gzip.compress(content) for name, content in CONTENTS.items()}
    fill(tmp_path / "root/usr/share/toy", packed)
    assert get(Debian("dataset-toy", "usr/share/toy", tmp_path / "root"), tmp_path) == CONTENTS


def test_a_debian_package_is_fetched_with_private_state(tmp_path: Path, commands: Path) -> None:
    package = tgz(tmp_path / "toy.tgz", CONTENTS, "usr/share/toy")
    apt = f"""
assert sys.argv[1:3] == ['-q', '-c']
config = open(sys.argv[3]).read()
assert f'Lists "{{os.getcwd()}}/lists"' in config and f'Dir::Cache "{{os.getcwd()}}/cache"' in config
if sys.argv[4:] == ['update']:
    open('lists/updated', 'w').close()
else:
    assert sys.argv[4:] == ['download', 'dataset-toy'] and os.path.exists('lists/updated')
    shutil.copy({str(package)!r}, 'dataset-toy_1_all.deb')"""
    program(commands, "apt-get", apt)
    program(commands, "dpkg-deb", "tarfile.open(sys.argv[2]).extractall(sys.argv[3], filter='data')")
    assert get(Debian("dataset-toy", "usr/share/toy", tmp_path / "root"), tmp_path) == CONTENTS
