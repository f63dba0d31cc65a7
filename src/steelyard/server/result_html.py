"""A result in a notebook: a figure of one metric over the rounds, and a row for each client.

Client names and reasons are untrusted: all text is escaped. Colours are those of the notebook, so that the
table is readable on light and dark pages.
"""

import html
import math
from collections.abc import Mapping, Sequence

from steelyard.texts import plain
from steelyard.types import ClientId, Row
from steelyard.verdicts.sentences import Verdict

MAX_CLIENTS = 40
MAX_POINTS = 300
MAX_TEXT = 400
METRICS = ("accuracy", "mse", "client_accuracy", "client_mse", "loss")
"""Of these, the first that the run has is shown."""
WIDTH, HEIGHT, MARGIN = 420, 140, 24
ACCENT = "#2f8fb3"  # readable on white and on black
CELL = (
    "padding:2px 10px;text-align:{};vertical-align:top;border:none;background:none;"
    "min-width:6.5em;overflow-wrap:anywhere"
)


def result_html(
    title: str, history: Sequence[Row], verdicts: Mapping[ClientId, Verdict], warnings: Sequence[str] = ()
) -> str:
    """The whole output. Notebooks typeset text between dollar signs: the classes turn that off."""
    parts = [f"<div>{_text(title)}</div>", *(f"<div><b>{_text(each)}</b></div>" for each in warnings)]
    parts += [_figure(history), _table(list(verdicts.values()))]
    content = "".join(parts)
    return f'<div class="tex2jax_ignore mathjax_ignore">{content}</div>'


def _text(text: str) -> str:
    """Untrusted text as HTML: escaped, without control characters, and not too long."""
    text = " ".join(plain(text).split())
    return html.escape(text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…")


def _figure(history: Sequence[Row]) -> str:
    """The first metric that the run has, as a line over the rounds (SVG); empty if it has none."""
    for name in METRICS:
        values = [(row.get("round"), row.get(name)) for row in history]
        points = [(float(x), float(y)) for x, y in values if x is not None and y is not None]
        points = [point for point in points if math.isfinite(point[1])]
        if points:
            step = -(-len(points) // MAX_POINTS)
            return _line(name.replace("_", " "), points[::-step][::-1])  # the last point is always kept
    return ""


def _line(name: str, points: Sequence[tuple[float, float]]) -> str:
    (left, right), (low, high) = ((min(axis), max(axis)) for axis in zip(*points, strict=True))
    x_unit = (WIDTH - 2 * MARGIN) / ((right - left) or 1)
    y_unit = (HEIGHT - 2 * MARGIN) / ((high - low) or 1)
    places = [(MARGIN + (x - left) * x_unit, HEIGHT - MARGIN - (y - low) * y_unit) for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    label = f"{name}: {points[-1][1]:.4g} after round {right:.0f}"
    words = {
        (MARGIN, MARGIN - 8, "start"): f"{label} (from {low:.4g} to {high:.4g})",
        (MARGIN, HEIGHT - 8, "start"): f"round {left:.0f}",
        (WIDTH - MARGIN, HEIGHT - 8, "end"): f"{right:.0f}",
    }
    texts = "".join(
        f'<text x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(word)}</text>'
        for (x, y, anchor), word in words.items()
    )
    base = HEIGHT - MARGIN
    return (
        f'<svg role="img" aria-label="{html.escape(label)}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" fill="currentColor" font-size="11" style="color:inherit;max-width:100%">'
        f'<path d="M{MARGIN} {base}H{WIDTH - MARGIN}" stroke="currentColor" stroke-opacity="0.4"/>'
        f'<polyline points="{path}" fill="none" stroke="{ACCENT}" stroke-width="2"/>'
        f'<circle cx="{places[-1][0]:.1f}" cy="{places[-1][1]:.1f}" r="3" fill="{ACCENT}"/>{texts}</svg>'
    )


def _table(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return ""
    measure = next((each.score[0] for each in verdicts if each.score is not None), "accuracy")
    heaviest = max((each.share or 0.0 for each in verdicts), default=0.0) or 1.0
    headings = {"client": "left", "samples": "right", "weight": "left", measure: "right", "verdict": "left"}
    head = "".join(f'<th style="{CELL.format(side)}">{heading}</th>' for heading, side in headings.items())
    rows = "".join(_row(each, heaviest, getattr(each, measure)) for each in verdicts[:MAX_CLIENTS])
    left = len(verdicts) - MAX_CLIENTS
    more = f"<div>… and {left:,} more</div>" if left > 0 else ""
    return f'<table style="border-collapse:collapse;font-size:inherit"><tr>{head}</tr>{rows}</table>{more}'


def _row(verdict: Verdict, heaviest: float, score: float | None) -> str:
    share = verdict.share or 0.0
    width = round(80 * max(share, 0.0) / heaviest)
    bar = f'<span style="display:inline-block;height:0.7em;width:{width}px;background:{ACCENT}"></span> '
    cells = (
        ("left", _text(verdict.client)),
        ("right", "–" if verdict.samples is None else f"{verdict.samples:,}"),
        ("left;white-space:nowrap", bar + ("–" if verdict.share is None else f"{share:.3f}")),
        ("right", "–" if score is None else f"{score:.3f}"),
        ("left", _text(verdict.text)),
    )
    return "<tr>" + "".join(f'<td style="{CELL.format(side)}">{cell}</td>' for side, cell in cells) + "</tr>"
