"""The gate for names that lead to code: `module:factory`, which can be any function on this computer.

Names that the user types, or passes from Python, may be imported. Names in a file may be imported only if the
user trusts the file. Files become tables of settings in one place, `sources.read_file`, which calls `admit`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from steelyard.errors import InputError
from steelyard.importing import NAME, load
from steelyard.specs import trust

__all__ = ["Permission", "UntrustedError", "admit", "code_names", "load", "sealed"]

Permission = bool | Callable[[Path, Sequence[str]], bool]
"""True, False, or a function that asks the user about a file and the names in it."""


class UntrustedError(InputError):
    """A file names code and is not trusted."""


def admit(file: Path, content: bytes, table: Mapping[str, Any], permission: Permission) -> None:
    """Return if the code that a file names may run; otherwise raise an UntrustedError.

    This is the only place that decides it. `table` is what the file says, `content` its bytes.
    """
    names = _to_admit(table)
    if not names or permission is True or trust.covers(file, content):
        return
    if callable(permission) and permission(file, names):
        return
    raise UntrustedError(
        f"{file} names code that is not part of steelyard ({', '.join(names)}): if you trust the file, pass "
        f"--trust (trust=True in Python), or trust its folder for good with `steelyard trust {file.parent}`."
    )


def sealed(text: str, table: Mapping[str, Any], file: Path) -> str:
    """The text of a spec that a run writes to `file`; if it names code, it is marked as the user's own."""
    return trust.sealed(text, file) if _to_admit(table) else text


def code_names(table: Mapping[str, Any]) -> list[str]:
    """Every text in a table that `load` would import, at any depth."""
    texts = (text for key, text in _texts({k: v for k, v in table.items() if k != "about"}))
    return sorted({text for text in texts if NAME.fullmatch(text)})


def _to_admit(table: Mapping[str, Any]) -> list[str]:
    """All that leads to code: names, and addresses of clusters, whose machines can run code here.

    Also where observers write, if that is outside of the current folder, and where they send the rounds.
    """
    clusters = {text for key, text in _texts(table) if key.rpartition(".")[2] == "address"}
    return [*code_names(table), *sorted(clusters), *sorted({*_places(table)})]


def _places(value: Any) -> Iterator[str]:
    """Where the observers in a value write or send to, at any depth."""
    if isinstance(value, Mapping):
        for name, text in _texts(value.get("observers")):
            if name in ("path", "tracking_uri") and not _is_inside(text):
                yield text
        value = list(value.values())
    for inner in value if isinstance(value, list | tuple) else ():
        yield from _places(inner)


def _is_inside(text: str) -> bool:
    """Whether a text is a path inside of the current folder."""
    path = Path(text)
    return not (path.is_absolute() or ".." in path.parts or text.startswith("~") or ":" in text)


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a value, with the key of the table that it is in."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _texts(inner, str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, key)
