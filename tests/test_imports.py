"""Imports go one way: a part imports only from lower layers (docs/layers.py)."""

import ast
import runpy
from pathlib import Path

import pytest

import steelyard

ROOT = Path(steelyard.__file__).parent

LAYERS = runpy.run_path(str(Path(__file__).parents[1] / "docs" / "layers.py"))["LAYERS"]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem[:2] != "__")


def part_of(path: Path) -> str:
    """The folder or file below steelyard/ that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    parts: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "steelyard":
            parts |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("steelyard."):
            parts.add(str(node.module).split(".")[1])
    return parts & RANK.keys()


def test_every_part_has_a_layer() -> None:
    assert {part_of(path) for path in FILES} == set(RANK)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    own = part_of(path)
    wrong = {part for part in imported_parts(path) if part != own and RANK[part] >= RANK.get(own, -1)}
    assert not wrong, f"{own} may not import {sorted(wrong)}"


@pytest.mark.parametrize(
    ("place", "forbidden"),
    [("server", {"data", "client", "engines", "attacks", "runs"}), ("client", {"server", "engines", "runs"})],
)
def test_server_and_client_know_each_other_only_by_what_crosses_between_them(
    place: str, forbidden: set[str]
) -> None:
    files = [path for path in FILES if part_of(path) == place]
    assert files
    for path in files:
        assert not imported_parts(path) & forbidden, path
