"""A run is continued with the spec, the version and the environment that it began with, or not at all."""

import json
from pathlib import Path

import pytest
from crashes import SPEC, assert_same, crash

import steelyard as sy
from steelyard.errors import InputError
from steelyard.runs.folder import ENVIRONMENT
from steelyard.runs.folder import SPEC as SPEC_FILE
from steelyard.runs.reader import Run
from steelyard.studies.parallel_runs import recorded_runs


def edit_spec(folder: Path) -> None:
    text = (folder / SPEC_FILE).read_text()
    (folder / SPEC_FILE).write_text(text.replace("lr = 0.1", "lr = 0.2"))


def change(folder: Path, name: str) -> None:
    recorded = json.loads((folder / ENVIRONMENT).read_text())
    (recorded["packages"] if name in recorded["packages"] else recorded)[name] = "other"
    (folder / ENVIRONMENT).write_text(json.dumps(recorded))


def test_an_edited_spec_is_refused_and_with_anyway_the_run_loses_its_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed, whole = crash(SPEC, tmp_path, monkeypatch)
    edit_spec(crashed)
    with pytest.raises(InputError, match=r"spec\.toml was edited.*--anyway"):
        sy.resume(crashed)
    with pytest.warns(UserWarning, match=r"spec\.toml was edited"):
        result = sy.resume(crashed, anyway=True)
    assert len(result.history) == 6
    meta = Run(crashed).meta
    assert (meta["status"], meta["fingerprint"], meta["anyway"]) == ("finished", "", "spec.toml was edited")
    key = (Run(whole).meta["fingerprint"], Run(whole).meta["version"])
    assert key not in recorded_runs(tmp_path)[0], "compare and grid do not take it for a run of the spec"


@pytest.mark.parametrize("name", ["steelyard", "python", "processor", "cpu_capability", "torch", "numpy"])
def test_another_version_or_environment_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed, whole = crash(SPEC, tmp_path, monkeypatch)
    change(crashed, name)
    with pytest.raises(InputError, match=f"{name} was other, now .*--anyway"):
        sy.resume(crashed)
    with pytest.warns(UserWarning, match=f"{name} was other"):
        sy.resume(crashed, anyway=True)
    assert_same(crashed, whole)


@pytest.mark.parametrize("name", ["cores", "platform"])
def test_more_cores_or_another_kernel_change_no_bit_and_are_welcome(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashed, whole = crash(SPEC, tmp_path, monkeypatch)
    change(crashed, name)
    sy.resume(crashed)
    assert_same(crashed, whole)


def test_an_environment_that_is_gone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashed, _ = crash(SPEC, tmp_path, monkeypatch)
    (crashed / ENVIRONMENT).unlink()
    with pytest.raises(InputError, match=r"environment\.json cannot be read"):
        sy.resume(crashed)
