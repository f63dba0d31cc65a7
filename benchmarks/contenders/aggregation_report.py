"""The results of benchmarks/aggregation.py as Markdown."""

import statistics
from collections.abc import Iterable, Mapping
from typing import Any

Results = Mapping[str, Any]
SCENES = {"clean": "clean updates", "outliers": "10 % of the clients send ten times as much"}
SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


def markdown(found: Results) -> str:
    """All tables that have results."""
    parts = [found["header"], *_baseline(found)]
    for scene, words in SCENES.items():
        parts += _rules(found["rules"], scene, words)
    parts += [*_own(found["rules"]), *_peers(found.get("peers")), *_naive(found.get("naive"))]
    parts += [*_file(found.get("file")), *(f"* {text}" for text in found["notes"])]
    return "\n\n".join(parts) + "\n"


def table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    columns = list(columns)
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    lines += [f"| {' | '.join(cells)} |" for cells in rows]
    return [f"**{title}**", "\n".join(lines)]


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.1f}" if seconds < 0.1 else f"{1000 * seconds:,.0f}"


def shape(result: Results) -> str:
    return f"{result['clients']} × 10{str(len(str(result['size'])) - 1).translate(SUPERSCRIPT)}"


def _shapes(results: list[Results]) -> list[str]:
    return list(dict.fromkeys(map(shape, results)))


def _baseline(found: Results) -> list[str]:
    """One Gram matrix: J (J + 1) K multiplications and additions in float64, and the norms."""
    rows = []
    for label in _shapes(found["rules"]):
        here = [result for result in found["rules"] if shape(result) == label]
        gram, mix = (
            statistics.median(value for result in here for value in result["raw"][name])
            for name in ("gram", "mix")
        )
        work = here[0]["clients"] * (here[0]["clients"] + 1) * here[0]["size"]
        rows.append([label, milliseconds(gram), milliseconds(mix), f"{work / gram / found['peak']:.1%}"])
    title = (
        f"One Gram matrix (float64) and one mix; a large float32 product runs at {found['peak'] / 1e9:.0f}"
    )
    return table(f"{title} GFLOP/s", ("J × K", "Gram, ms", "mix, ms", "Gram, of that"), rows)


def _rules(results: list[Results], scene: str, words: str) -> list[str]:
    """Each rule's time from updates to their mean as a ratio to Gram + mix, and its number of iterations."""
    here = [result for result in results if result["scene"] == scene]
    if not here:
        return []
    cells: dict[str, dict[str, str]] = {}
    for result in here:
        steps = "" if result["iterations"] is None else f" ({result['iterations']:.0f})"
        cells.setdefault(result["rule"], {})[shape(result)] = f"{result['ratio']:.2f}{steps}"
    labels = _shapes(here)
    rows = [[f"`{rule}`", *(cells[rule].get(label, "") for label in labels)] for rule in cells]
    title = f"Weighing + mixing, as a multiple of Gram + mix (iterations): {words}"
    return table(title, ("rule", *labels), rows)


def _own(results: list[Results]) -> list[str]:
    """The J × J work of a rule, which does not depend on K: the median over all K, of the slower scene."""
    if not results:
        return []
    clients = sorted({result["clients"] for result in results})
    rows = []
    for rule in dict.fromkeys(result["rule"] for result in results):
        cells = [f"`{rule}`"]
        for count in clients:
            here = [one for one in results if one["rule"] == rule and one["clients"] == count]
            scenes = {scene: [one["own"] for one in here if one["scene"] == scene] for scene in SCENES}
            medians = [statistics.median(values) for values in scenes.values() if values]
            cells.append(milliseconds(max(medians)) if medians else "")
        rows.append(cells)
    columns = ("rule", *(f"J = {count}" for count in clients))
    return table("The J×J work alone, ms", columns, rows)


def _peers(peers: Results | None) -> list[str]:
    if not peers or not peers["rules"]:
        return []
    rows = [
        [
            result["rule"],
            milliseconds(result["steelyard"]),
            milliseconds(result["byzfl"]),
            f"{result['faster']:.1f} ×",
            "yes" if result["same"] else f"differ by {result['difference']:.1g}",
        ]
        for result in peers["rules"]
    ]
    title = f"Beside ByzFL 0.0.11, {shape(peers)}, 10 % outliers"
    return table(title, ("rule", "steelyard, ms", "ByzFL, ms", "faster by", "same result"), rows)


def _naive(naive: Results | None) -> list[str]:
    if not naive:
        return []
    same = "the same result" if naive["same"] else "ANOTHER RESULT"
    return [
        f"`ivar-mle` on {shape(naive)} with outliers, {naive['passes']} iterations: "
        f"{milliseconds(naive['ours'])} ms; reading all updates in every iteration, "
        f"{milliseconds(naive['naive'])} ms ({same})."
    ]


def _file(file: Results | None) -> list[str]:
    if not file:
        return []
    return [
        f"A file of {file['bytes'] / 1e9:.1f} GB ({shape(file)}), `{file['rule']}` and mean: "
        f"{file['weigh']:.1f} s + {file['combine']:.1f} s, at most {file['megabytes']:,.0f} MB resident "
        f"({file['before']:,.0f} before anything was read)."
    ]
