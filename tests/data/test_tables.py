"""Published tables are read as they are: every row, every gap, and the class of each row."""

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from steelyard.data import tables
from steelyard.data.origins import Uci
from steelyard.data.store import Source, where
from steelyard.data.tables import Column, Table, adult, bcd, hcc, ilpd, parse, records
from steelyard.errors import InputError


def missing(column: Column) -> int:
    return int((column.values.isnan() if column.numeric else column.values < 0).sum())


def by_name(table: Table) -> dict[str, Column]:
    return {column.name: column for column in table.columns}


def provide(monkeypatch: pytest.MonkeyPatch, **contents: str) -> None:
    """Contents in place of the files: those of a name that begins with the key."""

    def load(source: Source) -> dict[str, bytes]:
        return {name: contents[name.replace(".", "_").split(" ")[0]].encode() for name in source.files}

    monkeypatch.setattr(tables, "load", load)


def test_numbers_categories_and_gaps_are_told_apart() -> None:
    rows = [["1.5", "red", "n"], ["?", "blue", "y"], ["", "?", "n"], ["-2", "red", "n"]]
    table = parse("toy", rows, ("size", "colour"), ("colour",), {"y": "yes", "n": "no"})
    size, colour = table.columns
    assert (size.numeric, size.categories, size.values.dtype) == (True, (), torch.float64)
    assert size.values.nan_to_num(99).tolist() == [1.5, 99, 99, -2]
    assert (colour.numeric, colour.categories, colour.values.dtype) == (False, ("blue", "red"), torch.int64)
    assert colour.values.tolist() == [1, 0, -1, 1]
    assert (table.labels.tolist(), table.labels.dtype) == ([1, 0, 1, 1], torch.int64)
    assert (len(table), table.class_names) == (4, ("yes", "no"))


def test_remarks_empty_lines_and_spaces_are_not_data() -> None:
    assert records(b"|1x3 Cross validator\n39, State-gov, <=50K.\n\n 50,?,>50K\n") == [
        ["39", "State-gov", "<=50K."],
        ["50", "?", ">50K"],
    ]


ADULT_ROW = "39, State-gov, 77516, Bachelors, 13, Divorced, ?, Wife, White, Male, 2174, 0, 40, Cuba, "


def test_adult_is_both_parts_and_labels_lose_their_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    train, test = f"{ADULT_ROW}<=50K\n{ADULT_ROW}>50K\n\n", f"|remark\n{ADULT_ROW}>50K.\n"
    provide(monkeypatch, adult_data=train, adult_test=test)
    table = adult()
    assert table.labels.tolist() == [0, 1, 1]
    columns = by_name(table)
    assert columns["education"].categories == ("Bachelors",)
    assert columns["education-num"].values.tolist() == [13, 13, 13]
    assert missing(columns["occupation"]) == 3


def test_the_number_of_a_sample_is_not_a_column_of_bcd(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "1000025,5,1,1,1,2,?,3,1,1,2\n1002945,5,4,4,5,7,10,3,2,1,4\n"
    provide(monkeypatch, **{"breast-cancer-wisconsin_data": rows})
    table = bcd()
    assert len(table.columns) == 9
    assert all(float(column.values.nan_to_num(0).max()) <= 10 for column in table.columns)
    assert missing(by_name(table)["bare nuclei"]) == 1
    assert table.labels.tolist() == [0, 1]


NUMBERS = Column("size", torch.tensor([1.0, 2.0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("column", "labels", "message"),
    [
        (NUMBERS, torch.tensor([0, 2]), "labels should be between 0 and 1"),
        (NUMBERS, torch.tensor([0.0, 1.0]), "labels should be whole numbers"),
        (NUMBERS, torch.tensor([], dtype=torch.int64), "labels should be whole numbers"),
        (NUMBERS, torch.tensor([0, 1, 1]), "size needs 3 values"),
        (Column("size", torch.tensor([1.0, torch.inf])), torch.tensor([0, 1]), "size has infinite values"),
        (
            Column("hue", torch.tensor([0, 1]), ("red",)),
            torch.tensor([0, 1]),
            "hue should be between -1 and 0",
        ),
        (Column("hue", torch.tensor([True, False])), torch.tensor([0, 1]), "hue should be whole numbers"),
    ],
)
def test_a_table_that_makes_no_sense(column: Column, labels: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=f"^table 'toy': {message}"):
        Table("toy", (column,), labels, ("a", "b"))


def zipped(name: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("__MACOSX/._hcc-data.txt", b"no data")
        archive.writestr(name, content)
    return packed.getvalue()


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """What is at each address; a test fills it."""
    pages: dict[str, bytes] = {}
    monkeypatch.setattr(
        "steelyard.data.fetching.download.download", lambda url, path: path.write_bytes(pages[url])
    )
    return pages


def test_files_come_from_their_places_at_uci_with_plain_line_ends(
    web: dict[str, bytes], tmp_path: Path
) -> None:
    top = "https://archive.ics.uci.edu/ml/machine-learning-databases/"
    web[f"{top}adult/adult.test"] = b"adult\n\n"
    web[f"{top}00225/Indian%20Liver%20Patient%20Dataset%20%28ILPD%29.csv"] = b"65,Female\r\n62,Male\r\n"
    web[f"{top}00423/hcc-survival.zip"] = zipped("hcc-survival/hcc-data.txt", b"1,0\n")
    (origin,) = tables.SOURCE.origins
    names = ["adult.test", tables.ILPD_FILE, tables.HCC_FILE]
    assert list(origin.fetch(names, tmp_path).values()) == [b"adult\n\n", b"65,Female\n62,Male\n", b"1,0\n"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(zipped("other.txt", b"1"), "no a.txt in the archive"), (b"<html>", "a.txt cannot be unpacked")],
)
def test_an_archive_without_the_file_is_an_os_error(
    content: bytes, message: str, web: dict[str, bytes], tmp_path: Path
) -> None:
    web["there/a.zip"] = content
    with pytest.raises(OSError, match=message):
        Uci({"a.txt": "a.zip"}, url="there/").fetch(["a.txt"], tmp_path)


def test_a_table_needs_only_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEELYARD_DATA", str(tmp_path))
    monkeypatch.setenv("STEELYARD_CACHE", str(tmp_path / "cache"))
    (tmp_path / "tabular").mkdir()
    (tmp_path / "tabular" / tables.HCC_FILE).write_bytes(b"1")
    assert where(tables.HCC) == tmp_path / "tabular"
    assert where(tables.BCD) is None
    assert set(tables.SOURCE.files) == {
        name for each in (tables.ADULT, tables.HCC, tables.BCD, tables.ILPD) for name in each.files
    }


@pytest.mark.skipif(
    not os.environ.get("STEELYARD_DATA"), reason="STEELYARD_DATA does not name a folder with tabular/"
)
@pytest.mark.parametrize(
    ("factory", "source", "counts", "columns", "numeric", "gaps"),
    [
        (adult, tables.ADULT, [24_720 + 12_435, 7_841 + 3_846], 14, 6, 6_465),
        (hcc, tables.HCC, [63, 102], 49, 26, 826),
        (bcd, tables.BCD, [458, 241], 9, 9, 16),
        (ilpd, tables.ILPD, [416, 167], 10, 9, 4),
    ],
    ids=["adult", "hcc", "bcd", "ilpd"],
)
def test_the_published_tables(
    factory: Callable[[], Table], source: Source, counts: list[int], columns: int, numeric: int, gaps: int
) -> None:
    if where(source) is None:
        pytest.skip(f"STEELYARD_DATA has no {', '.join(source.files)}")
    table = factory()
    assert table.labels.bincount().tolist() == counts
    assert len(table.columns) == len(by_name(table)) == columns
    assert sum(column.numeric for column in table.columns) == numeric
    assert sum(missing(column) for column in table.columns) == gaps
    named = by_name(table)
    if table.name == "adult":
        found = {name: missing(column) for name, column in named.items() if missing(column)}
        assert found == {"workclass": 2_799, "occupation": 2_809, "native-country": 857}
        assert [len(column.categories) for column in table.columns if not column.numeric] == [
            8, 16, 7, 14, 6, 5, 2, 41,
        ]  # fmt: skip
        assert len(table) == 48_842
    elif table.name == "hcc":  # per cent of missing values and ranges, as the description says
        for name, share in (("Symptoms", 10.91), ("Varices", 31.52), ("Nodules", 1.21), ("Ferritin", 48.48)):
            assert 100 * missing(named[name]) / 165 == pytest.approx(share, abs=0.005)
        for name, low, high in (("Age", 20, 93), ("PS", 0, 4), ("INR", 0.84, 4.82), ("Albumin", 1.9, 4.9)):
            known = named[name].values[~named[name].values.isnan()]
            assert (float(known.min()), float(known.max())) == (low, high), name
        assert {column.categories for column in table.columns if not column.numeric} == {("0", "1")}
    elif table.name == "bcd":
        assert missing(named["bare nuclei"]) == gaps
    else:
        assert missing(named["A/G Ratio"]) == gaps
        assert named["Gender"].categories == ("Female", "Male")
