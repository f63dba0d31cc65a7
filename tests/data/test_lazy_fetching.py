"""A data set that is on disk loads without the code that fetches data sets."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import steelyard.data

# The source of MNIST with the checksums of the small files in the folder.
LOAD = """
import dataclasses, hashlib, sys
from pathlib import Path

from steelyard.data import mnist, sources, store

for factory in sources.__all__:
    store.status(sources.source_of(getattr(sources, factory)))
files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in Path(sys.argv[1]).iterdir()}
mnist.SOURCE = dataclasses.replace(mnist.SOURCE, files=files)
assert len(mnist.mnist().train) == 2
fetching = ("pooch", "requests", "steelyard.data.fetching")
print([name for name in sys.modules if name.startswith(fetching)])
"""


@pytest.mark.parametrize("variable", ["STEELYARD_DATA", "STEELYARD_CACHE"])
def test_a_data_set_on_disk_loads_without_fetching_code(tmp_path: Path, variable: str) -> None:
    folder = tmp_path / "mnist"
    folder.mkdir()
    for part in ("train", "t10k"):
        (folder / f"{part}-images-idx3-ubyte").write_bytes(
            bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1]) + b"ab"
        )
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(bytes([0, 0, 8, 1, 0, 0, 0, 2, 3, 4]))
    variables = {"STEELYARD_DATA": "", "STEELYARD_CACHE": str(tmp_path / "empty"), variable: str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_only_the_fetching_folder_runs_programs_and_downloads() -> None:
    """torch imports `subprocess` too, so the source is searched."""
    folder = Path(steelyard.data.__file__).parent
    files = list(folder.glob("*.py"))
    assert len(files) > 20
    for path in files:
        for module in ("subprocess", "pooch", "requests", "urllib.request"):
            assert f"import {module}" not in path.read_text("utf-8"), path
            assert f"from {module}" not in path.read_text("utf-8"), path
