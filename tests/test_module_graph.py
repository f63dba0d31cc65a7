"""docs/modules.svg shows the code as it is now."""

import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

DOCS = Path(__file__).parents[1] / "docs"
TEXT = "{http://www.w3.org/2000/svg}text"


@pytest.fixture
def module_graph(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(DOCS)
    import module_graph

    yield module_graph
    for name in ("module_graph", "graph_layout", "layers"):
        sys.modules.pop(name, None)


def test_the_committed_picture_is_what_the_program_draws_now(module_graph: ModuleType) -> None:
    committed = module_graph.PICTURE.read_text("utf-8")
    assert committed == module_graph.draw(), "run `python docs/module_graph.py`"


def test_the_picture_is_valid_svg_and_names_every_part(module_graph: ModuleType) -> None:
    texts = {element.text for element in ElementTree.fromstring(module_graph.draw()).iter(TEXT)}
    for part in module_graph.read_parts().values():
        assert f"{part.name}{'/' if part.is_folder else '.py'}" in texts


def test_an_edge_that_a_longer_path_implies_is_left_out(module_graph: ModuleType) -> None:
    edges = {("a", "b"), ("b", "c"), ("a", "c"), ("c", "d"), ("a", "d"), ("e", "d")}
    assert module_graph.reduced(edges) == {("a", "b"), ("b", "c"), ("c", "d"), ("e", "d")}


def test_nodes_of_a_row_do_not_overlap_and_lines_to_one_box_share_a_lane(module_graph: ModuleType) -> None:
    rows = [["a", "b"], ["c"], ["d", "e"]]
    edges = {("a", "c"), ("a", "d"), ("b", "d"), ("c", "e")}
    widths = {**dict.fromkeys("abcde", 100.0), "lane": 10.0, "gap": 5.0}
    layout = module_graph.arrange(rows, edges, widths)
    lane = module_graph.Lane("d", 1)
    assert {("a", lane), ("b", lane), (lane, "d")} < set(layout.segments)
    for row in layout.rows:
        half = {node: widths.get(node, 10.0) / 2 for node in row}
        for left, right in pairwise(row):
            assert layout.x[right] - layout.x[left] >= half[left] + half[right] + 5 - 0.2
        assert layout.x[row[0]] >= half[row[0]] - 0.1
        assert layout.x[row[-1]] <= layout.width - half[row[-1]] + 0.1
