"""What the README and the pages in docs/ show works."""

import copy
import re
import runpy
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import steelyard as sy
from steelyard import components
from steelyard.cli.catalogue import KINDS
from steelyard.specs.schema import load_spec
from steelyard.specs.sources import parse_override, presets
from steelyard.studies.grid import read_grid

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
DOCS = {path.name: path.read_text("utf-8") for path in sorted((ROOT / "docs").glob("*.md"))}
PAGE = DOCS["bring_your_own.md"]


def blocks(text: str, language: str = "python") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


PYTHON = [block for text in (README, *DOCS.values()) for block in blocks(text) if text is not DOCS["api.md"]]
BEGIN, *SHOWN = re.findall(
    r"^(#+ [^\n]+)\n(?:(?!^#).)*?```python\n(.*?)```", PAGE, flags=re.DOTALL | re.MULTILINE
)


def test_the_two_commands_come_first() -> None:
    assert README.index("make demo") < README.index("make test") < README.index("## ")


def test_the_specs_shown_are_valid() -> None:
    shown = [*blocks(README, "toml"), *blocks(DOCS["specs.md"], "toml")]
    hostile, whole = (load_spec(tomllib.loads(block)) for block in shown)
    assert (hostile.adversaries.count, hostile.adversaries.attack["scale"]) == (4, 2.0)
    assert whole.objective["name"] == "proximal"
    assert whole.data.partition["alpha"] == 0.1
    assert whole.data.shift is not None


def test_everything_that_answers_a_question_is_in_the_table() -> None:
    for family in ("objectives", "sharing", "weighing", "combining", "datasets", "models"):
        for name in components.names(family):
            assert f"`{name}`" in README, name


def test_the_runs_shown_have_valid_specs() -> None:
    lines = re.findall(
        r"^steelyard (?:run|compare|grid|data show) (.*?)(?: {2,}#.*)?$", README, flags=re.MULTILINE
    )
    words = [word for line in lines for word in re.sub(r"--page|--\w+ \S+", "", line).split()]
    assert len(words) > 5
    for word in words:
        if "=" in word:
            load_spec("fedprox" if word.startswith("objective.mu") else None, dict([parse_override(word)]))
        elif not word.endswith((".toml", ".png")):
            assert word in presets()


def test_the_python_shown_exists() -> None:
    for name in re.findall(r"\bsy\.(\w+)", README + "".join(DOCS.values())):
        assert hasattr(sy, name)


def test_every_snippet_of_the_page_is_run() -> None:
    assert len(SHOWN) + 1 == PAGE.count("```python") == 35


@pytest.mark.parametrize(("title", "block"), SHOWN, ids=[title.strip("# ") for title, _ in SHOWN])
def test_what_the_page_shows_works_in_ten_lines(
    title: str, block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    names: dict[str, Any] = {"__name__": "page"}
    exec(BEGIN[1], names)
    exec(compile(block, title, "exec"), names)
    result = names.get("result")
    assert result is None or not result.warnings


def test_the_spec_of_the_page_is_valid() -> None:
    (block,) = blocks(PAGE, "toml")
    spec = load_spec(tomllib.loads(block))
    assert spec.metrics["top3"]["k"] == 3
    assert spec.training["schedule"] == {**spec.training["schedule"], "name": "cosine", "warmup": 2}
    assert spec.task.ignore_index == -1


def test_links_to_files_and_headings_lead_somewhere() -> None:
    for text, folder in ((README, ROOT), *((text, ROOT / "docs") for text in DOCS.values())):
        for link in re.findall(r"\]\(([^)]+)\)", text):
            path, _, anchor = link.partition("#")
            if path.startswith("http"):
                continue
            target = folder / path if path else None
            assert target is None or target.exists(), link
            if anchor:
                page = text if target is None else target.read_text("utf-8")
                titles = re.findall(r"^#+ (.*)$", page, flags=re.MULTILINE)
                assert anchor in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_quickstart_learns_in_ten_lines_and_says_what_it_found(
    capsys: pytest.CaptureFixture[str],
) -> None:
    (block,) = (each for each in blocks(README) if "def hospital" in each)
    lines = [line for line in block.splitlines() if line.strip() and "import" not in line]
    assert len(lines) <= 10
    torch.manual_seed(0)
    names: dict[str, Any] = {}
    exec(block, names)
    assert names["result"].accuracy > 0.85
    assert not names["result"].warnings
    assert "lyon counted for" in capsys.readouterr().out


def test_the_quickstart_comes_before_the_rest_and_claims_no_registry() -> None:
    assert re.findall(r"^## (.*)$", README, flags=re.MULTILINE)[0] == "Quickstart"
    assert "pip install ." in README
    assert not re.search(r"pip install \"?steelyard", README + "".join(DOCS.values()))


def test_the_posteriors_and_the_heads_shown_train() -> None:
    x, y = torch.randn(20, 4), torch.arange(20) % 3
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 3))
    shared = {"clients": {"oslo": (x, y), "turin": (x, y)}, "my_model": net, "weights": [0.5, 0.5], "sy": sy}
    shared |= {"means": torch.randn(2, 5), "variances": torch.ones(2, 5)}
    own = {"net1": net, "net2": copy.deepcopy(net), "x1": x, "x2": x, "y1": y, "y2": y, "sy": sy}
    for page, names in (("posteriors.md", shared), ("heads.md", own)):
        (block,) = blocks(DOCS[page])
        exec(block, names)
        assert names["result"].state.round == 30
    assert shared["merged"].variance.shape == (5,)


def test_the_partition_and_the_attack_shown_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition, attack, program = blocks(DOCS["extending.md"])
    (tmp_path / "mine.py").write_text(partition + attack)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        names: dict[str, Any] = {}
        exec(program, names)
        sizes = [row["num_examples"] for row in names["result"].clients if row["round"] == 1]
        assert [round(after / before, 1) for before, after in pairwise(sizes)] == [1.5] * 4
        assert sum(row["adversary"] for row in names["result"].clients) == 4 * 2
    finally:
        sys.modules.pop("mine", None)


def test_what_the_run_provides_to_parts_is_what_the_page_says() -> None:
    shown = {
        "data.partition": "partitions",
        "data.shift": "shifts",
        "model": "models",
        "metrics.NAME": "metrics",
    }
    rows = [line.split("|") for line in DOCS["extending.md"].splitlines() if line.startswith("| `")]
    given = {row[1].strip(" `"): {*re.findall(r"`(\w+)`", row[3])} for row in rows}
    for key, family in shown.items():
        assert given[key] == components.FAMILIES[family].context


def test_the_kinds_that_can_be_listed_are_in_the_readme() -> None:
    for kind in KINDS:
        assert f"`{kind}`" in README.replace("`steelyard list weighing`", "`weighing`"), kind


def test_the_three_doors_shown_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = (each for each in PYTHON if "# 1. a spec or preset" in each)
    x, y = torch.randn(30, 4), torch.arange(30) % 3
    names: dict[str, Any] = dict.fromkeys(("x1", "x2", "x_test"), x)
    names |= dict.fromkeys(("y1", "y2", "y_test"), y)
    names |= {"torch_dataset": torch.utils.data.TensorDataset(x, y), "my_module": torch.nn.Linear(4, 3)}
    names["updates"] = torch.randn(3, 5)
    exec(block.replace("rounds=20", "rounds=1"), names)
    assert names["merged"].shape == (5,)
    assert names["result"].path.is_dir()


def test_the_grid_shown_is_valid() -> None:
    (line,) = re.findall(r"^steelyard grid (\S+ --rows \S+ --columns \S+)", README, flags=re.MULTILINE)
    target, _, rows, _, columns = line.split()
    plan = read_grid(target, {}, rows=rows, columns=columns, panels=None, seeds=None, metrics=None)
    assert len(plan.rows.labels) * len(plan.columns.labels) == 6


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.splitlines()[0])
def test_the_python_shown_can_be_read(block: str) -> None:
    compile(block, "page", "exec")


# Stand-ins for the frameworks: of each, what the class that is shown uses.


class Base:
    def configure_train(self, *arguments: Any) -> list[Any]:
        return []


class Array(np.ndarray):
    def __new__(cls, values: Any) -> "Array":
        return np.asarray(values).view(cls)

    def numpy(self) -> Any:
        return np.asarray(self)


class DXO(SimpleNamespace):
    def __init__(self, kind: str, data: Any, count: int = 1) -> None:
        super().__init__(data_kind=kind, data=data)
        self.get_meta_prop = lambda key, default: count
        self.to_shareable = lambda: self


@pytest.fixture
def frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    members = {
        "flwr.app": {"Array": Array, "ArrayRecord": dict},
        "flwr.serverapp.strategy": {"FedAvg": Base},
        "nvflare.apis.dxo": {
            "DXO": DXO,
            "DataKind": SimpleNamespace(WEIGHTS="WEIGHTS"),
            "MetaKey": SimpleNamespace(NUM_STEPS_CURRENT_ROUND="steps"),
            "from_shareable": lambda shareable: shareable.dxo,
        },
        "nvflare.apis.fl_constant": {"ReservedKey": SimpleNamespace(IDENTITY_NAME="name")},
        "nvflare.app_common.abstract.aggregator": {"Aggregator": Base},
        "nvflare.app_common.app_constant": {"AppConstants": SimpleNamespace(GLOBAL_MODEL="model")},
    }
    for name, values in members.items():
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
        vars(sys.modules[name]).update(values)


def shown_class(framework: str) -> Any:
    """The class that is shown, with `merge` from the example that it is said to be in."""
    (block,) = (each for each in PYTHON if f"from {framework}." in each)
    names = {"merge": runpy.run_path(str(ROOT / "examples" / "in_your_loop.py"))["merge"]}
    exec(block, names)
    return names["Weighed"]


MODEL = {"weight": np.zeros((5, 4), np.float32), "steps": np.array(7)}
TRUTH = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)


def sent(client: int) -> dict[str, np.ndarray]:
    """Three learn the truth, one its opposite, and one does not know the model."""
    noise = 0.1 * np.random.default_rng(client).normal(size=TRUTH.shape).astype(np.float32)
    update = -TRUTH if client == 3 else TRUTH + noise
    return {"weight": np.ones(1, np.float32)} if client == 4 else {"weight": update, "steps": np.array(9)}


def check(merged: dict[str, np.ndarray]) -> None:
    assert np.abs(merged["weight"] - TRUTH).max() < 0.3
    assert merged["weight"].dtype == np.float32
    assert merged["steps"] == 7


@pytest.mark.usefixtures("frameworks")
def test_the_flower_strategy_shown_leaves_out_who_opposes_the_others() -> None:
    def record(arrays: dict[str, np.ndarray]) -> dict[str, Array]:
        return {name: Array(array) for name, array in arrays.items()}

    def reply(client: int) -> SimpleNamespace:
        content = {"arrays": record(sent(client)), "metrics": {"num-examples": 10}}
        metadata = SimpleNamespace(src_node_id=client)
        return SimpleNamespace(metadata=metadata, content=content, has_error=lambda: False)

    strategy = shown_class("flwr")()
    failed = SimpleNamespace(has_error=lambda: True)
    for number in (1, 2, 3):
        strategy.configure_train(number, record(MODEL), {}, None)
        merged, metrics = strategy.aggregate_train(number, [failed, *map(reply, range(5))])
    check(merged)
    assert metrics is None


@pytest.mark.usefixtures("frameworks")
def test_the_nvflare_aggregator_shown_leaves_out_who_opposes_the_others() -> None:
    def shareable(client: int, kind: str = "WEIGHTS") -> SimpleNamespace:
        name = f"site-{client}"
        return SimpleNamespace(dxo=DXO(kind, sent(client), 10), get_peer_prop=lambda key, default: name)

    aggregator = shown_class("nvflare")()
    context = SimpleNamespace(get_prop=lambda key: {"weights": MODEL})
    for _ in (1, 2, 3):
        assert all(aggregator.accept(shareable(client), context) for client in range(5))
        assert not aggregator.accept(shareable(0, "METRICS"), context)
        merged = aggregator.aggregate(context).data
    check(merged)
