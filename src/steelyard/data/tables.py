"""Tables of the UCI repository with two classes: ADULT, HCC survival, breast cancer (BCD) and ILPD.

They keep their missing values: each client prepares its own rows (`steelyard.data.preparation`).
"""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steelyard.data.origins import Uci
from steelyard.data.store import Source, load
from steelyard.errors import InputError

MISSING = ("?", "")


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a table: numbers, or codes of categories."""

    name: str
    values: Tensor
    """[N]. Numbers are float64, NaN where missing; codes are int64, -1 where missing."""
    categories: tuple[str, ...] = ()

    @property
    def numeric(self) -> bool:
        return self.values.is_floating_point()


@dataclass(frozen=True, eq=False)
class Table:
    """Columns of equal length and a class for each row."""

    name: str
    columns: tuple[Column, ...]
    labels: Tensor
    class_names: tuple[str, ...]

    def __post_init__(self) -> None:
        self._check_codes("labels", self.labels, 0, len(self.class_names))
        for column in self.columns:
            if column.values.shape != self.labels.shape:
                raise self._wrong(column.name, f"needs {len(self.labels)} values, one for each row")
            if not column.numeric:
                self._check_codes(column.name, column.values, -1, len(column.categories))
            elif bool(column.values.isinf().any()):
                raise self._wrong(column.name, "has infinite values: make them NaN (missing)")

    def __len__(self) -> int:
        return len(self.labels)

    def _check_codes(self, field: str, codes: Tensor, lowest: int, count: int) -> None:
        if codes.dtype != torch.int64 or codes.dim() != 1 or len(codes) == 0:
            raise self._wrong(field, "should be whole numbers (int64), one for each row")
        if int(codes.min()) < lowest or int(codes.max()) >= count:
            raise self._wrong(field, f"should be between {lowest} and {count - 1}")

    def _wrong(self, field: str, problem: str) -> InputError:
        return InputError(f"table {self.name!r}: {field} {problem}.")


ADULT_FILES, HCC_FILE = ("adult.data", "adult.test"), "hcc-data.txt"
BCD_FILE, ILPD_FILE = "breast-cancer-wisconsin.data", "Indian Liver Patient Dataset (ILPD).csv"
PATHS = {
    "adult.data": "adult/adult.data",
    "adult.test": "adult/adult.test",
    HCC_FILE: "00423/hcc-survival.zip",
    BCD_FILE: f"breast-cancer-wisconsin/{BCD_FILE}",
    ILPD_FILE: f"00225/{ILPD_FILE}",
}
SOURCE = Source(
    name="tabular",
    about="four tables of two classes: ADULT 48 842 × 14, HCC 165 × 49, BCD 699 × 9, ILPD 583 × 10",
    licence="CC BY 4.0 (UCI Machine Learning Repository)",
    files={
        "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
        HCC_FILE: "83c6594af06e9dce3bbf382996abab994d35e3894496439b60d19fed4a96594b",
        BCD_FILE: "402c585309c399237740f635ef9919dc512cca12cbeb20de5e563a4593f22b64",
        ILPD_FILE: "23d74e0035f319efff79ed2d71de63d5c771ce7ad748e79b98812b0224d60901",
    },
    origins=(Uci(PATHS),),
)


def part(*names: str) -> Source:
    """The source with only these files, so that a table needs none of the others."""
    return replace(SOURCE, files={name: SOURCE.files[name] for name in names})


ADULT, HCC, BCD, ILPD = part(*ADULT_FILES), part(HCC_FILE), part(BCD_FILE), part(ILPD_FILE)

ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week", "native-country",
)  # fmt: skip
ADULT_CATEGORICAL = (
    "workclass", "education", "marital-status", "occupation", "relationship", "race", "sex", "native-country",
)  # fmt: skip
# Yes or no, or the gender. The ordinal columns (performance status and two degrees) are treated as numbers.
HCC_CATEGORICAL = (
    "Gender", "Symptoms", "Alcohol", "HBsAg", "HBeAg", "HBcAb", "HCVAb", "Cirrhosis", "Endemic", "Smoking",
    "Diabetes", "Obesity", "Hemochro", "AHT", "CRI", "HIV", "NASH", "Varices", "Spleno", "PHT", "PVT",
    "Metastasis", "Hallmark",
)  # fmt: skip
HCC_NUMERIC = (
    "Age", "Grams/day", "Packs/year", "PS", "Encephalopathy", "Ascites", "INR", "AFP", "Hemoglobin", "MCV",
    "Leucocytes", "Platelets", "Albumin", "Total Bil", "ALT", "AST", "GGT", "ALP", "TP", "Creatinine",
    "Nodules", "Major Dim", "Dir. Bil", "Iron", "Sat", "Ferritin",
)  # fmt: skip
BCD_COLUMNS = (
    "clump thickness", "uniformity of cell size", "uniformity of cell shape", "marginal adhesion",
    "single epithelial cell size", "bare nuclei", "bland chromatin", "normal nucleoli", "mitoses",
)  # fmt: skip
ILPD_COLUMNS = ("Age", "Gender", "TB", "DB", "Alkphos", "Sgpt", "Sgot", "TP", "ALB", "A/G Ratio")


def adult() -> Table:
    """Income above 50 000 dollars (Becker and Kohavi, 1996), both published parts together."""
    contents = load(ADULT)
    rows = [row for name in ADULT_FILES for row in records(contents[name])]
    rows = [[*row[:-1], row[-1].removesuffix(".")] for row in rows]  # labels of adult.test end with a dot
    return parse("adult", rows, ADULT_COLUMNS, ADULT_CATEGORICAL, {"<=50K": "<=50K", ">50K": ">50K"})


def hcc() -> Table:
    """One-year survival of liver cancer (Santos et al., 2015)."""
    rows = records(load(HCC)[HCC_FILE])
    return parse("hcc", rows, HCC_CATEGORICAL + HCC_NUMERIC, HCC_CATEGORICAL, {"0": "dies", "1": "lives"})


def bcd() -> Table:
    """Breast Cancer Wisconsin, Original (Wolberg, 1992), without the sample number."""
    rows = [row[1:] for row in records(load(BCD)[BCD_FILE])]
    return parse("bcd", rows, BCD_COLUMNS, (), {"2": "benign", "4": "malignant"})


def ilpd() -> Table:
    """Indian Liver Patient Dataset (Ramana and Venkateswarlu, 2012): liver patient or not."""
    rows = records(load(ILPD)[ILPD_FILE])
    return parse("ilpd", rows, ILPD_COLUMNS, ("Gender",), {"1": "patient", "2": "no patient"})


def records(content: bytes) -> list[list[str]]:
    """The fields of each line, without empty lines and comments, which begin with |."""
    lines = csv.reader(io.StringIO(content.decode("ascii")), skipinitialspace=True)
    return [line for line in lines if line and not line[0].startswith("|")]


def parse(
    name: str,
    rows: Sequence[Sequence[str]],
    columns: Sequence[str],
    categorical: Sequence[str],
    classes: Mapping[str, str],
) -> Table:
    """A table from rows whose last field is the class; `classes` maps that field to names, in label order."""
    *fields, targets = zip(*rows, strict=True)
    parsed = [
        _codes(column, values) if column in categorical else _numbers(column, values)
        for column, values in zip(columns, fields, strict=True)
    ]
    labels = torch.tensor([list(classes).index(target) for target in targets])
    return Table(name, tuple(parsed), labels, tuple(classes.values()))


def _numbers(name: str, fields: Sequence[str]) -> Column:
    values = [float("nan" if field in MISSING else field) for field in fields]
    return Column(name, torch.tensor(values, dtype=torch.float64))


def _codes(name: str, fields: Sequence[str]) -> Column:
    categories = sorted(set(fields) - set(MISSING))
    numbers = {category: number for number, category in enumerate(categories)}
    return Column(name, torch.tensor([numbers.get(field, -1) for field in fields]), tuple(categories))
