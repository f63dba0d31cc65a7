"""Import what `module:factory` names: code outside the package, which can be any function on this computer.

Names that a file holds are admitted by `specs.gate` before they come here.
"""

import importlib
import os
import re
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from steelyard.errors import InputError

Factory = Callable[..., Any]

INSTALLED = frozenset(
    Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib", "stdlib", "platstdlib")
)
_IDENTIFIER = r"[^\W\d]\w*"
NAME = re.compile(rf"{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER}")


def is_installed(path: Path) -> bool:
    """Whether a file belongs to Python or an installed package, which do not change from run to run."""
    return not INSTALLED.isdisjoint(path.resolve().parents)


def leads_to_code(name: str) -> bool:
    """Whether the name is meant to be imported. All others are names of components."""
    return ":" in name


def load(noun: str, name: str) -> Factory:
    """Import the factory that a name leads to. The current folder is searched last, after all packages."""
    if not NAME.fullmatch(name):
        raise InputError(f"{noun} {name!r} cannot be imported: write it as my_package.module:factory.")
    path, _, attribute = name.partition(":")
    try:
        if not {"", os.getcwd()} & set(sys.path):
            sys.path.append(os.getcwd())
        factory = getattr(importlib.import_module(path), attribute)
    except Exception as error:  # importing a user's module can raise anything
        raise InputError(f"{noun} {name!r} cannot be imported: {type(error).__name__}: {error}.") from error
    if not callable(factory):
        raise InputError(f"{noun} {name!r} is not callable.")
    return cast(Factory, factory)
