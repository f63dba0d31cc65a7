"""The numbers of a round under names that MLflow and TensorBoard accept."""

import hashlib
import math
import re
from collections.abc import Iterator

from steelyard.types import Round, Value

MAX_CLIENTS = 200  # of a round; more would make both programs slow
COLUMNS = ("weight", "accuracy", "mse")
MAX_NAME = 60
_SAFE = re.compile(rf"\w[\w.-]{{0,{MAX_NAME - 1}}}")
_HASHED = re.compile(r".*-[0-9a-f]{12}")


def scalars(round: Round) -> dict[str, float]:
    """Metrics, seconds by stage, and the weight and score of the first 200 clients. Only finite numbers."""
    numbers = {name: value for name, value in _named(round) if isinstance(value, int | float)}
    return {name: float(value) for name, value in numbers.items() if math.isfinite(value)}


def safe_name(text: str) -> str:
    """A name of letters, digits and `_ . -`; different texts have different names.

    What is replaced or cut is made up for by a hash, and so is a text that looks like a name with a hash.
    """
    if _SAFE.fullmatch(text) and not _HASHED.fullmatch(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    readable = re.sub(r"[^\w-]", "_", text)[:MAX_NAME]
    return f"{readable}-{digest}"


def _named(round: Round) -> Iterator[tuple[str, Value]]:
    for name, value in round.metrics.items():
        yield safe_name(name), value
    for stage, seconds in round.seconds.items():
        yield f"seconds/{safe_name(stage)}", seconds
    for row in round.clients[:MAX_CLIENTS]:
        client = safe_name(str(row["client"]))
        for column in COLUMNS:
            yield f"clients/{client}/{column}", row.get(column)
