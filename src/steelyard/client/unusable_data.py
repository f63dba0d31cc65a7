"""Data with values that are infinite or not a number are found before the first round."""

from collections.abc import Iterable, Sequence

from steelyard.client.checks import own_test
from steelyard.data.array_examples import float_tables, is_finite
from steelyard.data.clients import Client
from steelyard.data.examples import AnyExamples, ArrayExamples, Examples, count_unusable
from steelyard.errors import warn_caller

MAX_NAMED = 3  # sets that a warning names


def warn_of_unusable(
    clients: Sequence[Client], test: AnyExamples | None, validation: AnyExamples | None
) -> None:
    """Warn of values that are infinite or not a number: models can be neither scored nor trained on them.

    Tables in files, and data that are read by code of the user's own, are not read for this.
    """
    scored = [("the test set", test), ("the validation set", validation)]
    scored += [(f"the test data of client {client.id!r}", own_test(client)) for client in clients]
    trained = [(f"the training data of client {client.id!r}", client.train) for client in clients]
    finite: dict[tuple[int, bool | None], bool] = {}
    for sets, advice in ((scored, "or there are no scores"), (trained, "or its updates are rejected")):
        found = _unusable(sets, finite)
        if found:
            more = f" and {len(found) - MAX_NAMED} more sets" if len(found) > MAX_NAMED else ""
            named = ", ".join(found[:MAX_NAMED])
            warn_caller(f"{named}{more} have values that are not finite; leave them out, {advice}.")


def _unusable(
    sets: Iterable[tuple[str, AnyExamples | None]], finite: dict[tuple[int, bool | None], bool]
) -> list[str]:
    """What is unusable in which sets. `finite` keeps which tables are: clients may share one."""
    found, seen = [], set()
    for name, data in sets:
        if not isinstance(data, Examples | ArrayExamples) or data.on_disk:
            continue
        tables = {(id(table), data.double): table for table in float_tables(data)}
        for key, table in tables.items():
            if key not in finite:
                finite[key] = is_finite(table, data.double)
        place = id(data.inputs), id(data.rows)
        if place in seen or all(finite[key] for key in tables):
            continue
        seen.add(place)
        if count := count_unusable(data):
            found.append(f"{count} of {len(data)} examples of {name}")
    return found
