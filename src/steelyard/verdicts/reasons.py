"""Words for the evidence of a weighing rule. They are data, so that a record keeps them with the figures."""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Reason:
    """One figure that a rule's weights depend on, and what to say if it sets a client apart.

    The texts are clauses about one client: "it reported few examples". They say what was seen, and never
    guess at a purpose.
    """

    factor: str
    """The column of the record that the weights are multiplied by, to the power of `power`."""
    label: str
    """The figure that is quoted, in a word or two: "variance". Empty: none is quoted."""
    less: str = ""
    """Said of clients that count for less because of it. Empty: it is never a reason for that."""
    more: str = ""
    """Said of clients that count for more because of it. Empty: it is never a reason for that."""
    against: str = ""
    """Said in place of `less` if the figure that is quoted is negative on average."""
    same: str = ""
    """Said of clients that it does not set apart, in place of "its figures were usual"."""
    power: float = 1.0
    shows: str = ""
    """The column that is quoted, if it is not the factor itself."""
    relative: bool = False
    """Quote the figure as a multiple of the usual one in its round, because its scale means nothing."""

    @property
    def shown(self) -> str:
        return self.shows or self.factor


EXAMPLES = Reason(
    "num_examples",
    "examples",
    less="it reported few examples",
    more="it reported many examples",
)
"""For rules that weigh by the number of examples."""


def to_json(reasons: Iterable[Reason]) -> str:
    return json.dumps([asdict(reason) for reason in reasons], ensure_ascii=False)


def from_json(text: str | None) -> tuple[Reason, ...]:
    """The reasons in a record; none if it has none that can be read."""
    try:
        return tuple(Reason(**_checked(table)) for table in json.loads(text or "[]"))
    except (ValueError, TypeError, AttributeError):
        return ()


def _checked(table: dict[str, Any]) -> dict[str, Any]:
    """A table whose values have the types of the fields; anything else is an error."""
    kinds = {"power": (int, float), "relative": (bool,)}
    if not all(isinstance(value, kinds.get(name, (str,))) for name, value in table.items()):
        raise TypeError("not a reason")
    return table
