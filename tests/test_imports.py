"""Imports go one way. A module may import from the rows above its own, never from below or beside."""

import ast
from pathlib import Path

import pytest

import steelyard

ROOT = Path(steelyard.__file__).parent

LAYERS = [
    {"errors", "types", "seeds"},
    {"layout", "settings", "nn", "metrics"},
    {"objectives", "sharing", "weighing", "combining"},
    {"algorithm", "attacks"},
    {"data"},
    {"client", "server"},
    {"engines"},
    {"runs"},
    {"simulation"},
    {"specs"},
    {"functional", "studies"},
    {"report"},
    {"cli"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(path for path in ROOT.rglob("*.py") if path.parent != ROOT or path.stem[:2] != "__")


def part_of(path: Path) -> str:
    """The folder or file below steelyard/ that a file belongs to."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_parts(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module == "steelyard":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("steelyard."):
            found.add(str(node.module).split(".")[1])
    return found & RANK.keys()


def test_every_part_has_a_layer() -> None:
    assert {part_of(path) for path in FILES} == set(RANK)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    own = part_of(path)
    wrong = {part for part in imported_parts(path) if part != own and RANK[part] >= RANK.get(own, -1)}
    assert not wrong, f"{own} may not import {sorted(wrong)}"
