import os

import pytest

# Read when torch is imported. Else its threads wait in a loop, which takes seconds on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def pytest_configure(config: pytest.Config) -> None:
    """Clients that fail are the point of many tests; those of the warnings turn them on again."""
    config.addinivalue_line("filterwarnings", "ignore::steelyard.errors.ParticipationWarning")


@pytest.fixture(autouse=True)
def no_settings_of_the_user(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests neither read nor write the list of folders that the user of this computer trusts."""
    monkeypatch.setenv("STEELYARD_CONFIG", str(tmp_path_factory.getbasetemp() / "steelyard-settings"))
