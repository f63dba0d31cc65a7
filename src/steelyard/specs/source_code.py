"""Hashes of the source code that names such as `my_package.module:factory` lead to; nothing is imported."""

import ast
import functools
import hashlib
import importlib.util
import sys
import uuid
from pathlib import Path

from steelyard.importing import is_installed


def source_hash(name: str) -> str:
    """A hash of all Python files of the top-level package, and of modules that these import.

    Of installed packages, only the named one is read: the others do not change from run to run.
    """
    files = _sources(name.partition(":")[0].partition(".")[0])
    if not files:  # typed into an interpreter: its runs must never pass for others
        return uuid.uuid4().hex
    digest = hashlib.sha256()
    for path in sorted(files):
        stat = path.stat()
        digest.update(f"{path.name} {_file_hash(path, stat.st_mtime_ns, stat.st_size)}\n".encode())
    return digest.hexdigest()


def _sources(top: str) -> set[Path]:
    found = _files(top)
    waiting, seen = list(found), {top, "steelyard"}  # runs of other versions of steelyard are not reused
    while waiting:
        for name in _imports(waiting.pop()) - seen:
            seen.add(name)
            own = {path for path in _files(name) if not is_installed(path)}
            waiting += own - found
            found |= own
    return found


def _files(top: str) -> set[Path]:
    """The files of a package or module; a compiled module is its own source."""
    try:
        spec = importlib.util.find_spec(top)
    except ValueError:  # a script has no spec
        spec = None
    if spec is not None and spec.submodule_search_locations is not None:
        return {path for folder in spec.submodule_search_locations for path in Path(folder).rglob("*.py")}
    origin = getattr(sys.modules.get(top), "__file__", None) if spec is None else spec.origin
    if origin in ("built-in", "frozen"):
        origin = sys.executable
    return {Path(origin)} if origin is not None and Path(origin).is_file() else set()


def _imports(path: Path) -> set[str]:
    """Top-level names that a file of the user imports, without Python's own."""
    if path.suffix != ".py" or is_installed(path):
        return set()
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (SyntaxError, ValueError):
        return set()
    plain = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    members = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and not node.level}
    return {name.partition(".")[0] for name in (*plain, *members) if name} - sys.stdlib_module_names


@functools.cache
def _file_hash(path: Path, modified: int, size: int) -> str:
    """By time and size, so that a file is read again when it has changed."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
