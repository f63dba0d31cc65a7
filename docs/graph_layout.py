"""Layout of a layered graph: boxes in rows, edges that go down, and a lane where an edge passes a row.

Edges to the same box share their lanes. The order within rows is chosen to have few crossings, and
positions are near the mean of a node's neighbours (Sugiyama's method).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import NamedTuple

Edge = tuple[str, str]
SWEEPS = 40
LANE_WEIGHT = 4.0  # of a lane's place beside 1 of a box's: long lines are straight


class Lane(NamedTuple):
    """Where edges to a box pass a row."""

    target: str
    row: int


Node = str | Lane


@dataclass(frozen=True)
class Layout:
    rows: list[list[Node]]
    """The nodes of each row from left to right, top row first."""
    segments: list[tuple[Node, Node]]
    """The parts of edges between neighbouring rows."""
    x: Mapping[Node, float]
    """The centre of each node, from 0 to `width`."""
    width: float


def reduced(edges: Iterable[Edge]) -> set[Edge]:
    """The edges without those that a longer path implies."""
    edges = set(edges)
    below: dict[str, set[str]] = {}

    def reach(node: str) -> set[str]:
        if node not in below:
            below[node] = set()
            for source, target in edges:
                if source == node:
                    below[node] |= {target} | reach(target)
        return below[node]

    def implied(source: str, target: str) -> bool:
        return any(target in reach(other) for start, other in edges if start == source and other != target)

    return {edge for edge in edges if not implied(*edge)}


def arrange(rows: Sequence[Sequence[str]], edges: Iterable[Edge], widths: Mapping[str, float]) -> Layout:
    """Lay out boxes of these widths, lanes of width `widths["lane"]`, and gaps of `widths["gap"]`."""
    row_of = {name: number for number, row in enumerate(rows) for name in row}
    nodes: list[list[Node]] = [list(row) for row in rows]
    segments: set[tuple[Node, Node]] = set()
    for source, target in sorted(edges):
        previous: Node = source
        for row in range(row_of[source] + 1, row_of[target]):
            lane = Lane(target, row)
            nodes[row] += [] if lane in nodes[row] else [lane]
            segments.add((previous, lane))
            previous = lane
        segments.add((previous, target))
    ordered = _few_crossings(nodes, segments)
    sizes = {node: widths["lane" if isinstance(node, Lane) else node] for row in nodes for node in row}
    width = max(sum(sizes[node] + widths["gap"] for node in row) for row in nodes) - widths["gap"]
    x = _positions(ordered, segments, sizes, widths["gap"], width)
    return Layout(ordered, sorted(segments, key=str), x, width)


def _neighbours(segments: Iterable[tuple[Node, Node]]) -> dict[Node, list[Node]]:
    found: dict[Node, list[Node]] = {}
    for upper, lower in sorted(segments, key=str):
        found.setdefault(upper, []).append(lower)
        found.setdefault(lower, []).append(upper)
    return found


def _crossings(rows: list[list[Node]], segments: set[tuple[Node, Node]]) -> int:
    place = {node: (number, index) for number, row in enumerate(rows) for index, node in enumerate(row)}
    ends = [(place[upper], place[lower]) for upper, lower in segments]
    return sum(a[0] == c[0] and (a[1] - c[1]) * (b[1] - d[1]) < 0 for (a, b), (c, d) in combinations(ends, 2))


def _few_crossings(rows: list[list[Node]], segments: set[tuple[Node, Node]]) -> list[list[Node]]:
    """Sort each row by the mean place of its neighbours, repeatedly; then swap pairs while that helps."""
    near = _neighbours(segments)
    best, least = rows, _crossings(rows, segments)
    for sweep in range(SWEEPS):
        rows = [list(row) for row in rows]
        for row in rows if sweep % 2 else reversed(rows):
            place = {node: (i + 0.5) / len(each) for each in rows for i, node in enumerate(each)}
            mean = {
                node: sum(place[other] for other in near[node]) / len(near[node])
                for node in row
                if node in near
            }
            row.sort(key=lambda node: mean.get(node, place[node]))
        count = _crossings(rows, segments)
        if count < least:
            best, least = rows, count
    best = [list(row) for row in best]
    improved = True
    while improved:
        improved = False
        for row in best:
            for i, j in combinations(range(len(row)), 2):
                row[i], row[j] = row[j], row[i]
                count = _crossings(best, segments)
                if count < least:
                    least, improved = count, True
                else:
                    row[i], row[j] = row[j], row[i]
    return best


def _positions(
    rows: list[list[Node]],
    segments: set[tuple[Node, Node]],
    sizes: Mapping[Node, float],
    gap: float,
    width: float,
) -> dict[Node, float]:
    """Centres near the mean of the neighbours, from 0 to `width`, with room between the nodes of a row."""
    near = _neighbours(segments)
    x: dict[Node, float] = dict.fromkeys(sizes, width / 2)
    for sweep in range(4 * SWEEPS):
        for row in rows if sweep % 2 else reversed(rows):
            means = [
                sum(x[other] for other in near[node]) / len(near[node]) if node in near else width / 2
                for node in row
            ]
            steps = [(sizes[a] + sizes[b]) / 2 + gap for a, b in pairwise(row)]
            weights = [LANE_WEIGHT if isinstance(node, Lane) else 1.0 for node in row]
            limits = sizes[row[0]] / 2, width - sizes[row[-1]] / 2
            x.update(zip(row, _spread(means, steps, weights, limits), strict=True))
    return {node: round(value, 1) for node, value in x.items()}


def _spread(
    wanted: list[float], steps: list[float], weights: list[float], limits: tuple[float, float]
) -> list[float]:
    """The places within limits nearest to the wanted ones, at least `steps` apart (isotonic regression)."""
    offsets = [sum(steps[:index]) for index in range(len(wanted))]
    least, most = limits[0], limits[1] - offsets[-1]
    blocks: list[tuple[float, float, int]] = []  # (mean, weight, count) of nodes that touch
    for value, offset, weight in zip(wanted, offsets, weights, strict=True):
        blocks.append((value - offset, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, wa, ca), (b, wb, cb) = blocks[-2:]
            blocks[-2:] = [((wa * a + wb * b) / (wa + wb), wa + wb, ca + cb)]
    means = [min(max(mean, least), most) for mean, _, count in blocks for _ in range(count)]
    return [mean + offset for mean, offset in zip(means, offsets, strict=True)]
