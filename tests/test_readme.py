"""What the README shows works."""

import re
import tomllib
from pathlib import Path

import steelyard as sy
from steelyard.layers import parse_override, presets
from steelyard.spec import load_spec

README = (Path(__file__).parents[1] / "README.md").read_text("utf-8")


def test_the_two_commands_come_first() -> None:
    assert README.index("make demo") < README.index("make test") < README.index("## ")


def test_the_spec_shown_is_valid() -> None:
    (block,) = re.findall(r"```toml\n(.*?)```", README, flags=re.DOTALL)
    spec = load_spec(tomllib.loads(block))
    assert spec.objective["name"] == "proximal"
    assert spec.data.partition["alpha"] == 0.1
    assert spec.data.shift is not None


def test_the_runs_shown_have_valid_specs() -> None:
    lines = re.findall(
        r"^steelyard (?:run|compare|data show) (.*?)(?: {2,}#.*)?$", README, flags=re.MULTILINE
    )
    words = [word for line in lines for word in re.sub(r"--\w+ \S+", "", line).split()]
    assert len(words) > 5
    for word in words:
        if "=" in word:
            load_spec("fedprox" if word.startswith("objective.mu") else None, dict([parse_override(word)]))
        elif not word.endswith((".toml", ".png")):
            assert word in presets()


def test_the_python_shown_exists() -> None:
    for name in re.findall(r"\bsy\.(\w+)", README):
        assert hasattr(sy, name)
