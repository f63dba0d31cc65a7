"""Small archives that unpack to very large files are refused while they unpack."""

import gzip
import io
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steelyard.data import rawfiles, store
from steelyard.data.fetching import archives, download
from steelyard.data.fetching.archives import read_from_zip, unpack_tar
from steelyard.data.store import Source
from steelyard.errors import InputError

MEGABYTE = 1 << 20


def gzip_bomb(megabytes: int) -> bytes:
    """Zeros, of which gzip makes a thousandth."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(packer.compress(bytes(MEGABYTE)) for _ in range(megabytes)), packer.flush()])


def peak_of(action: Callable[[], Any]) -> int:
    """The most bytes that were allocated at a time, in megabytes."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1] // MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def bomb() -> bytes:
    return gzip_bomb(1000)


def test_a_gzip_bomb_is_refused_at_the_limit(tmp_path: Path, bomb: bytes) -> None:
    (tmp_path / "bomb.gz").write_bytes(bomb)

    def read() -> None:
        with pytest.raises(OSError, match=r"more than 67,108,864 bytes"):
            rawfiles.read_all(tmp_path, ["bomb"])

    assert len(bomb) < 2 * MEGABYTE
    assert peak_of(read) < 200


def test_a_data_set_that_is_a_bomb_gets_one_sentence(
    tmp_path: Path, bomb: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEELYARD_DATA", str(tmp_path))
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "a.bin.gz").write_bytes(bomb)
    with pytest.raises(InputError, match=r"a\.bin\.gz cannot be used: it has more than"):
        store.load(Source("toy", "a toy", "none", {"a.bin": "0" * 64}))


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_a_file_of_exactly_the_limit_is_read(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    (tmp_path / "a").write_bytes(pack(bytes(1000)))
    assert rawfiles.read(tmp_path / "a", 1000) == bytes(1000)
    with pytest.raises(OSError, match="more than 999 bytes"):
        rawfiles.read(tmp_path / "a", 999)


def test_a_gzip_of_several_parts_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(gzip.compress(b"one ") + gzip.compress(b"two"))
    assert rawfiles.read(tmp_path / "a") == b"one two"


def test_a_member_of_a_zip_archive_is_limited(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("in/table.txt", bytes(1000))
    assert read_from_zip(tmp_path / "a.zip", "table.txt", 1000) == bytes(1000)
    with pytest.raises(OSError, match="more than 999 bytes"):
        read_from_zip(tmp_path / "a.zip", "table.txt", 999)


def tar_of(path: Path, sizes: list[int], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for number, size in enumerate(sizes):
            member = tarfile.TarInfo(f"file-{number}")
            member.size = size
            tar.addfile(member, io.BytesIO(bytes(size)))
    return path


@pytest.mark.parametrize("mode", ["w:gz", "w"])
def test_all_members_of_a_tar_archive_together_are_limited(tmp_path: Path, mode: str) -> None:
    archive = tar_of(tmp_path / "a.tar", [MEGABYTE] * 5, mode)
    unpack_tar(archive, tmp_path / "whole")
    assert len(list((tmp_path / "whole").iterdir())) == 5
    with pytest.raises(OSError, match=r"a\.tar cannot be unpacked: the archive unpacks to more than"):
        unpack_tar(archive, tmp_path / "part", limit=3 * MEGABYTE)
    written = sum(path.stat().st_size for path in (tmp_path / "part").iterdir())
    assert written <= 3 * MEGABYTE


def test_a_header_that_claims_much_is_not_read_into_memory(tmp_path: Path) -> None:
    """An extended header is read whole: one of 500 MB would take as much memory."""
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, 500 * MEGABYTE
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [packer.compress(header.tobuf()), *(packer.compress(bytes(MEGABYTE)) for _ in range(500))]
    (tmp_path / "a.tgz").write_bytes(b"".join([*parts, packer.flush()]))

    def unpack() -> None:
        with pytest.raises(OSError, match=r"a\.tgz cannot be unpacked: .*claims 524,288,000 bytes"):
            unpack_tar(tmp_path / "a.tgz", tmp_path / "out")

    assert peak_of(unpack) < 20


def test_a_server_that_sends_without_end_is_cut_off(tmp_path: Path) -> None:
    with (tmp_path / "a").open("wb") as file:
        writer = download.LimitedWriter(file, 100)
        writer.write(bytes(60))
        with pytest.raises(OSError, match="sends more"):
            writer.write(bytes(60))
    assert (tmp_path / "a").stat().st_size == 60
    assert archives.MAX_ARCHIVE_BYTES <= download.MAX_BYTES
