"""Draw the parts of steelyard and what imports what, read from the code, as docs/modules.svg.

python docs/module_graph.py
"""

import ast
import textwrap
from html import escape
from pathlib import Path
from typing import NamedTuple

from graph_layout import Lane, Layout, Node, arrange, reduced
from layers import LAYERS

PACKAGE = Path(__file__).parents[1] / "src" / "steelyard"
PICTURE = Path(__file__).with_name("modules.svg")

BOX, LINES, GAP, LANE = (212, 66), 2, 16, 8  # px: width and height of a box; lines of text; space; lane
ROW, MARGIN, HEAD = 108, 32, 112  # px: from one row to the next, around everything, title
CHARACTERS = 28  # of a line of text in a box
CAPTION = (
    "A part imports only from rows below its own. Lines are imports.",
    "Not drawn: imports that a longer path implies, and imports of the lowest row.",
)
INK, FAINT, LINE = "#1d2b33", "#5d6c75", "#8d9ca4"
FOLDER, MODULE, BORDER = "#e3f0f1", "#ffffff", "#7fb3b9"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
SANS = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


class Part(NamedTuple):
    """A folder or module of the package."""

    name: str
    is_folder: bool
    about: str
    imports: frozenset[str]


def read_parts() -> dict[str, Part]:
    """The parts of the package that are in a layer."""
    parts = {}
    for name in sorted(set().union(*LAYERS)):
        folder, module = PACKAGE / name, PACKAGE / f"{name}.py"
        files = sorted(folder.rglob("*.py")) if folder.is_dir() else [module] if module.is_file() else []
        if files:
            trees = {file: ast.parse(file.read_text("utf-8")) for file in files}
            about = ast.get_docstring(trees.get(folder / "__init__.py", trees[files[0]])) or ""
            imports = frozenset().union(*map(imported_parts, trees.values())) - {name}
            parts[name] = Part(name, folder.is_dir(), about.split("\n")[0], imports)
    return parts


def imported_parts(tree: ast.AST) -> set[str]:
    """What a module imports from the package, also within functions."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "steelyard":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("steelyard."):
            found.add(str(node.module).split(".")[1])
    return found


def draw() -> str:
    """The picture as SVG."""
    parts = read_parts()
    rows = [sorted(layer & parts.keys()) for layer in reversed(LAYERS) if layer & parts.keys()]
    row_of = {name: number for number, row in enumerate(rows) for name in row}
    edges = {
        (part.name, other)
        for part in parts.values()
        for other in part.imports & parts.keys()
        if row_of[part.name] < row_of[other] < len(rows) - 1  # imports of the lowest row are not drawn
    }
    widths = {**dict.fromkeys(parts, float(BOX[0])), "lane": float(LANE), "gap": float(GAP)}
    layout = arrange(rows, reduced(edges), widths)
    x = {node: value + MARGIN for node, value in layout.x.items()}
    width = layout.width + 2 * MARGIN
    height = HEAD + (len(rows) - 1) * ROW + BOX[1] + MARGIN
    body = [
        *_bands(len(rows), width),
        *_curves(layout, x, row_of),
        *(_box(part, x[part.name], row_of[part.name]) for part in parts.values()),
    ]
    return _page(width, height, body)


def _page(width: float, height: float, body: list[str]) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
            f'viewBox="0 0 {width:g} {height:g}" role="img" aria-label="The parts of steelyard">',
            f"<style>text{{font-family:{SANS};fill:{INK}}}.n{{font:600 14px {MONO}}}"
            f".t{{font-size:12px;fill:{FAINT}}}.l{{fill:none;stroke:{LINE};stroke-width:1.2}}</style>",
            f'<rect width="{width:g}" height="{height:g}" rx="14" fill="#ffffff"/>',
            f'<text x="{MARGIN}" y="40" style="font-size:19px;font-weight:700">The parts of steelyard</text>',
            *(
                f'<text x="{MARGIN}" y="{62 + 18 * number}" style="font-size:13px;fill:{FAINT}">{line}</text>'
                for number, line in enumerate(CAPTION)
            ),
            *body,
            "</svg>\n",
        ]
    )


def _bands(rows: int, width: float) -> list[str]:
    """A faint band behind each row."""
    return [
        f'<rect x="{MARGIN / 2:g}" y="{HEAD + row * ROW - 9:g}" width="{width - MARGIN:g}" '
        f'height="{BOX[1] + 18}" rx="10" fill="#f5f7f8"/>'
        for row in range(rows)
    ]


def _box(part: Part, x: float, row: int) -> str:
    left, top = x - BOX[0] / 2, HEAD + row * ROW
    lines = textwrap.wrap(_sentence(part.about), CHARACTERS, max_lines=LINES, placeholder=" …")
    texts = "".join(
        f'<text class="t" x="{left + 12:.1f}" y="{top + 39 + 15 * number}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    name = f"{part.name}/" if part.is_folder else f"{part.name}.py"
    return (
        f'<rect x="{left:.1f}" y="{top}" width="{BOX[0]}" height="{BOX[1]}" rx="8" '
        f'fill="{FOLDER if part.is_folder else MODULE}" stroke="{BORDER}"/>'
        f'<text class="n" x="{left + 12:.1f}" y="{top + 21}">{name}</text>{texts}'
    )


def _sentence(text: str) -> str:
    """The first sentence, without its full stop."""
    ends = [text.find(end) for end in (". ", "? ", "; ") if end in text]
    return text[: min(ends, default=len(text)) + 1].rstrip(".;")


def _curves(layout: Layout, x: dict[Node, float], row_of: dict[str, int]) -> list[str]:
    """Lines from the bottom of a box, through lanes, to an arrow on top of a box."""
    drawn = []
    for upper, lower in layout.segments:
        siblings = sorted((x[end], str(end)) for start, end in layout.segments if start == upper)
        place = siblings.index((x[lower], str(lower))) - (len(siblings) - 1) / 2
        start = x[upper] if isinstance(upper, Lane) else x[upper] + 16 * place
        row = upper.row if isinstance(upper, Lane) else row_of[upper]
        top = HEAD + row * ROW + (0 if isinstance(upper, Lane) else BOX[1])
        middle, bottom = HEAD + row * ROW + BOX[1], HEAD + (row + 1) * ROW
        end, bend = x[lower], (bottom - middle) * 0.55
        path = f"M{start:.1f} {top}V{middle}C{start:.1f} {middle + bend:.1f} {end:.1f} {bottom - bend:.1f} "
        drawn.append(f'<path class="l" d="{path}{end:.1f} {bottom}"/>')
        if not isinstance(lower, Lane):
            drawn.append(f'<path d="M{end - 4:.1f} {bottom - 7}h8l-4 7z" fill="{LINE}"/>')
    return drawn


if __name__ == "__main__":
    PICTURE.write_text(draw(), "utf-8")
