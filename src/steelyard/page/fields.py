"""Parts of the page's data that need no series: clients, names, where a run comes from."""

import json
from collections.abc import Sequence
from pathlib import Path

from steelyard.page.series import LABELS, Json
from steelyard.verdicts.reasons import Reason
from steelyard.verdicts.sentences import Verdict
from steelyard.verdicts.tally import Tally

MAX_CLIENTS = 2000
MAX_NAME = 300  # characters of a client's name, of a verdict without it, and of a reason


def column_labels(reasons: Sequence[Reason]) -> dict[str, str]:
    """Labels of the columns that a rule's reasons name."""
    found = {}
    for reason in reasons:
        if reason.label and reason.shown not in LABELS:
            found[reason.shown] = reason.label
        if reason.factor not in LABELS and reason.factor not in found:
            found[reason.factor] = reason.factor.replace("_", " ")
    return found


def extremes(tally: Tally) -> list[int]:
    """The clients that counted for least and for most, half of each."""
    invited, _, weight, equal, _ = tally.totals
    ratios = [share / fair if fair else 1.0 for share, fair in zip(weight, equal, strict=True)]
    order = sorted(range(len(invited)), key=lambda place: ratios[place])
    return sorted(order[: MAX_CLIENTS // 2] + order[-MAX_CLIENTS // 2 :])


def omitted(shown: int, total: int) -> str:
    half = shown // 2
    return (
        f"{shown:,} of {total:,} clients are shown: the {half:,} that counted for least, beside an equal "
        f"share, and the {half:,} that counted for most."
    )


def client_json(verdict: Verdict, group: int) -> Json:
    return {
        "id": cut(verdict.client),
        "verdict": cut(verdict.client) + cut(verdict.text.removeprefix(verdict.client), 2 * MAX_NAME),
        "share": short(verdict.share),
        "equal": short(verdict.equal),
        "samples": verdict.samples,
        "rounds": verdict.rounds,
        "used": verdict.used,
        "rejected": verdict.rejected,
        "score": None if verdict.score is None else short(verdict.score[1]),
        "adversary": verdict.adversary,
        "group": group,
    }


def short(value: float | None) -> float | None:
    """A number with five significant digits."""
    return None if value is None else float(f"{value:.5g}")


def cut(text: str, longest: int = MAX_NAME) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"


def group_name(number: int) -> str:
    return "like most" if number == 0 else f"group {number + 1}"


def whole_number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def environment_json(path: Path) -> list[list[str]]:
    """The recorded environment as pairs of texts."""
    try:
        table = json.loads(path.read_text("utf-8"))
        flat = {
            **{key: value for key, value in table.items() if key != "packages"},
            **table.get("packages", {}),
        }
        return [[str(key), str(value)] for key, value in flat.items()]
    except (OSError, ValueError, AttributeError, TypeError):
        return []


def calibration_json(recorded: str | None) -> Json | None:
    """The reliability diagram of the last evaluated model, from the record."""
    try:
        found = json.loads(recorded or "null")
        if found is None:
            return None
        bins, total = found["bins"], sum(size for size, _, _ in found["bins"])
        gap = sum(size * abs(right - sure) for size, sure, right in bins) / max(total, 1)
        return {
            "title": f"After round {int(found['round']):,}, {total:,.0f} test examples",
            "ece": gap,
            "bins": [_bin(place, len(bins), *values) for place, values in enumerate(bins)],
        }
    except (ValueError, TypeError, KeyError):
        return None


def _bin(place: int, bins: int, size: float, confidence: float, accuracy: float) -> Json:
    known = (
        {"confidence": confidence, "accuracy": accuracy} if size else {"confidence": None, "accuracy": None}
    )
    return {"low": place / bins, "high": (place + 1) / bins, "count": size, **known}
