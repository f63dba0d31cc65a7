"""Names work wherever Python takes a component: the same names, settings and errors as in a spec."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torchmetrics.classification import MulticlassAccuracy, MulticlassF1Score

import steelyard as sy
from steelyard.attacks import Gaussian, SignFlip
from steelyard.combining import TrimmedMean
from steelyard.engines import Pool, Serial
from steelyard.errors import InputError
from steelyard.objectives import CrossEntropy, Proximal
from steelyard.objectives.own_loss import OwnLoss
from steelyard.schedules import Cosine, Progress
from steelyard.settings import Server, Training
from steelyard.sharing import Head
from steelyard.specs.building import choose_adversaries
from steelyard.specs.schema import load_spec
from steelyard.weighing import Krum, Majority, Nnm, Samples

CLIENTS = {
    name: (torch.randn(8, 2, generator=torch.Generator().manual_seed(seed)), torch.arange(8) % 2)
    for seed, name in enumerate(("lima", "oslo", "pisa"))
}


def federation(**settings: Any) -> sy.Federation:
    return sy.Federation(CLIENTS, nn.Linear(2, 2), rounds=1, **settings)


def test_every_part_of_an_algorithm_has_a_name() -> None:
    algorithm = sy.Algorithm(
        objective={"name": "proximal", "mu": 0.3, "base": {"name": "cross-entropy", "label_smoothing": 0.1}},
        sharing="head",
        weighing={"name": "krum", "f": 1},
        combining={"name": "trimmed-mean", "trim": 0.2},
        training={"lr": 0.5, "steps": 3},
        server={"clip": "median"},
    )
    assert algorithm.objective == Proximal(mu=0.3, base=CrossEntropy(label_smoothing=0.1))
    assert algorithm.sharing == Head()
    assert algorithm.weighing == Krum(f=1)
    assert algorithm.combining == TrimmedMean(trim=0.2)
    assert algorithm.training == Training(lr=0.5, steps=3)
    assert algorithm.server == Server(clip="median")


def test_a_name_is_the_object_with_its_defaults() -> None:
    assert sy.Algorithm(weighing="majority") == sy.Algorithm(weighing=Majority())
    assert sy.Algorithm() == sy.Algorithm(weighing=Samples(), training=Training())


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"weighing": "majorty"}, r"unknown weighing rule 'majorty': did you mean 'majority'\?"),
        (
            {"weighing": {"name": "krum", "ff": 2}},
            r"unknown setting 'ff' of weighing rule 'krum': did you mean 'f'\?",
        ),
        ({"weighing": {"f": 2}}, r"weighing should be a name or a table with a name, not \{'f': 2\}\."),
        (
            {"objective": {"name": "proximal", "mu": "much"}},
            r"objective 'proximal': mu should be a valid number.*'much'",
        ),
        ({"training": {"lrr": 1}}, r"unknown setting 'lrr' of training: did you mean 'lr'\?"),
        ({"server": {"quorum": 2.0}}, r"server\.quorum must be from 0 to 1, not 2\.0\."),
        (
            {"weighing": 3},
            r"weighing must be a name, a table with a name, or an object of type Weigher, not 3\.",
        ),
        (
            {"weighing": Majority},
            r"weighing is the class Majority, not an object of it: write Majority\(\)\.",
        ),
        ({"sharing": Majority}, r"sharing is the class Majority, .*: give a Sharing\."),
        (
            {"combining": Majority()},
            r"combining must be a name, .*, or an object of type Combiner, not Majority\(",
        ),
        (
            {"training": 0.1},
            r"training must be a table of settings, or an object of type Training, not 0\.1\.",
        ),
        (
            {"server": Training()},
            r"server must be a table of settings, or an object of type Server, not Training\(",
        ),
    ],
)
def test_a_mistake_is_one_sentence_as_in_a_spec(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        sy.Algorithm(**settings)
    assert "\n" not in str(caught.value)


def half(progress: Progress) -> float:
    return 0.5


HUBER = nn.HuberLoss()


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        ({"training": {"schedule": Cosine(warmup=2)}}, {"training": Training(schedule=Cosine(warmup=2))}),
        ({"training": {"schedule": half}}, {"training": Training(schedule=half)}),
        (
            {"objective": {"name": "proximal", "base": CrossEntropy(0.1)}},
            {"objective": Proximal(base=CrossEntropy(0.1))},
        ),
        (
            {"objective": {"name": "proximal", "base": {"name": "proximal", "base": Proximal(mu=3.0)}}},
            {"objective": Proximal(base=Proximal(base=Proximal(mu=3.0)))},
        ),
        ({"weighing": {"name": "nnm", "rule": Krum(f=1)}}, {"weighing": Nnm(rule=Krum(f=1))}),
    ],
)
def test_the_settings_in_a_table_may_be_objects(table: dict[str, Any], wanted: dict[str, Any]) -> None:
    assert sy.Algorithm(**table) == sy.Algorithm(**wanted)


@pytest.mark.parametrize("loss", [HUBER, nn.functional.mse_loss])
def test_the_base_of_an_objective_in_a_table_may_be_a_loss(loss: Any) -> None:
    objective = sy.Algorithm(objective={"name": "proximal", "mu": 2.0, "base": loss}).objective
    assert isinstance(objective, Proximal)
    assert isinstance(objective.base, OwnLoss)
    assert (objective.mu, objective.base.function) == (2.0, loss)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"objective": {"name": "proximal", "base": nn.HuberLoss}}, r"give an instance .*: HuberLoss\(\)"),
        ({"objective": {"name": "proximal", "base": 3}}, "base should be a name or a table with a name"),
        ({"training": {"schedule": Cosine}}, r"schedule is the class Cosine, .*: write Cosine\(\)"),
        ({"weighing": {"name": "nnm", "rule": half}}, "rule should be a name or a table with a name"),
        ({"weighing": {"name": "nnm", "rule": Cosine()}}, "rule should be a name or a table with a name"),
    ],
)
def test_objects_of_another_kind_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        sy.Algorithm(**settings)


def test_a_federation_takes_engines_and_attacks_by_name() -> None:
    made = federation(
        engine={"name": "pool", "workers": 2},
        adversaries={"oslo": "sign-flip", "pisa": {"name": "gaussian", "scale": 2.0}},
    )
    assert made.engine == Pool(workers=2)
    assert made.adversaries == {"oslo": SignFlip(), "pisa": Gaussian(scale=2.0)}
    assert federation(engine="serial").engine == Serial()


def test_adversaries_are_counted_as_in_a_spec() -> None:
    drawn = set()
    for seed in range(5):
        spec = load_spec(None, {"seed": seed, "adversaries": {"count": 2, "attack": "gaussian"}})
        wanted = choose_adversaries(spec, tuple(CLIENTS))
        assert federation(adversaries={"count": 2, "attack": "gaussian"}, seed=seed).adversaries == wanted
        drawn.add(tuple(wanted))
    assert len(drawn) > 1
    assert list(federation(adversaries={"count": 1}).adversaries.values()) == [SignFlip()]
    parts = {"count": CLIENTS["oslo"], "lima": CLIENTS["lima"]}  # a client of this name
    made = sy.Federation(parts, nn.Linear(2, 2), adversaries={"count": "gaussian"})
    assert made.adversaries == {"count": Gaussian()}


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"engine": "pol"}, "unknown engine 'pol': did you mean 'pool'"),
        ({"engine": {"name": "pool", "worker": 2}}, "unknown setting 'worker' of engine 'pool'"),
        ({"engine": 2}, "engine must be a name, a table with a name, or an object of type Engine, not 2"),
        ({"engine": Pool}, r"engine is the class Pool, not an object of it: write Pool\(\)"),
        ({"adversaries": {"oslo": "sign-flop"}}, "unknown attack 'sign-flop': did you mean 'sign-flip'"),
        ({"adversaries": {"oslo": 3}}, r"adversaries\['oslo'\] must be a name"),
        (
            {"adversaries": "sign-flip"},
            r"adversaries must be a table of clients and their attacks, such as \{'oslo': 'sign-flip'\}, or "
            r"\{'count': 2, 'attack': 'sign-flip'\}, not 'sign-flip'",
        ),
        ({"adversaries": {"count": 4}}, "adversaries.count must be a whole number from 0 to 3, .*, not 4"),
        ({"adversaries": {"count": "oslo"}}, "adversaries.count must be a whole number .*, not 'oslo'"),
        ({"adversaries": {"count": 1, "attack": "sign-flop"}}, "unknown attack 'sign-flop'"),
        ({"adversaries": {"count": 1, "atack": "gaussian"}}, "unknown setting 'atack' of adversaries"),
        ({"adversaries": {"count": 1, "extra": True}}, "give the federation more clients instead"),
        ({"algorithm": "fedavg"}, "algorithm must be an Algorithm, not 'fedavg'"),
        ({"seed": 1.5}, r"^seed must be a whole number, not 1\.5\.$"),
        ({"seed": "x"}, "seed must be a whole number, not 'x'"),
        ({"seed": None}, "seed must be a whole number, not None"),
        ({"spill": "x"}, "spill must be True or False, not 'x'"),
        ({"task": "x"}, "task must be a sy.Task, not 'x'"),
        ({"metrics": "f1"}, r'metrics must be a table of names, such as \{"f1": "f1"\}, not \'f1\''),
        ({"metrics": {"f1": "f2"}}, "unknown metric 'f2': did you mean 'f1'"),
        ({"metrics": {"top": {"k": 3}}}, r"metrics\['top'\] should be a name or a table with a name"),
        ({"metrics": {"top": {"name": "top-k", "kk": 3}}}, "unknown setting 'kk' of metric 'top-k'"),
    ],
)
def test_a_mistake_in_a_federation_is_one_sentence(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        federation(**settings)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("mlp", r"model must be an nn\.Module, not the name 'mlp'.* steelyard\.nn\.zoo make them"),
        (nn.Linear, r"model is the class Linear, not an object of it: write Linear\(\.\.\.\)"),
        (lambda: nn.Linear(2, 2), r"model must be an nn\.Module, not an object of type function"),
    ],
)
def test_what_is_no_model_is_refused(model: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        sy.Federation(CLIENTS, model)
    with pytest.raises(InputError, match=f"^the {sentence}".replace("model", "model of client 'oslo'", 1)):
        sy.Client("oslo", CLIENTS["oslo"], model=model)


@pytest.mark.parametrize("clients", [None, 3])
def test_what_are_no_clients_is_refused(clients: Any) -> None:
    with pytest.raises(InputError, match=f"^clients must be sy.Client objects or .*, not {clients}"):
        sy.Federation(clients, nn.Linear(2, 2))


def test_a_seed_of_numpy_is_a_seed() -> None:
    assert type(federation(seed=np.int64(3)).seed) is int


def test_metrics_have_names_settings_and_the_classes_of_the_model() -> None:
    named = {"f1": "f1", "top": {"name": "top-k", "k": 1}, "mine": lambda outputs, targets: 1.0}
    objects = {**named, "f1": MulticlassF1Score(2), "top": MulticlassAccuracy(2, average="micro", top_k=1)}
    model = nn.Linear(2, 2)
    given: list[dict[str, Any]] = [{"metrics": named}, {"metrics": objects}, {"task": sy.Task(metrics=named)}]
    made = [sy.Federation(CLIENTS, model, test=CLIENTS["oslo"], rounds=1, **each) for each in given]
    found = [each.run().history for each in made]
    assert found[0] == found[1] == found[2]
    assert {"f1", "top", "mine"} < found[0][-1].keys()


def test_a_metric_of_classes_is_refused_where_there_are_none() -> None:
    numbers = {"oslo": (torch.ones(4, 2), torch.arange(4.0))}
    made = sy.Federation(numbers, nn.Linear(2, 1), metrics={"mae": "mean-absolute-error"}, rounds=1)
    assert list(made.task.own_metrics.metrics) == ["mae"]
    with pytest.raises(InputError, match=r"metric 'f1' is for classes, and .* of kind 'numbers'"):
        sy.Federation(numbers, nn.Linear(2, 1), metrics={"mine": "f1"})


def test_a_federation_with_named_metrics_is_resumed(tmp_path: Path) -> None:
    made = [federation(metrics={"f1": "f1"}, test=CLIENTS["oslo"]) for _ in range(2)]
    first = made[0].run(recorder=tmp_path / "run")
    assert made[1].resume(tmp_path / "run", rounds=2).history[0] == first.history[0]


def test_code_of_ones_own_has_a_name_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_rules.py").write_text(
        "from steelyard.weighing import Krum\n\ndef mine(f: int = 1):\n    return Krum(f=f)\n\n"
        "def wrong():\n    return 3\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    try:
        assert sy.Algorithm(weighing={"name": "own_rules:mine", "f": 2}).weighing == Krum(f=2)
        with pytest.raises(
            InputError, match="weighing: 'own_rules:wrong' returned an object of type int, not Weigher"
        ):
            sy.Algorithm(weighing="own_rules:wrong")
    finally:
        sys.modules.pop("own_rules", None)


def test_rules_for_a_loop_of_ones_own_are_named_in_the_same_way() -> None:
    updates = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    wanted = sy.weigh(updates, Krum(f=1)).weights
    for rule, settings in (("krum", {"f": 1}), ({"name": "krum", "f": 1}, {}), ({"name": "krum"}, {"f": 1})):
        assert torch.equal(sy.weigh(updates, rule, **settings).weights, wanted)
    with pytest.raises(InputError, match="rule is the class Krum"):
        sy.weigh(updates, Krum)  # type: ignore[arg-type]
    with pytest.raises(
        InputError, match="rule must be a name, a table with a name, or an object of type Weigher, not 3"
    ):
        sy.weigh(updates, 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"training": {"lr": "0.1"}}, "training.lr must be a number, not '0.1'."),
        ({"training": {"lr": True}}, "training.lr must be a number, not True."),
        ({"training": {"epochs": "2"}}, "training.epochs must be a number, not '2'."),
        ({"server": {"quorum": False}}, "server.quorum must be a number, not False."),
        ({"weighing": {"name": "krum", "f": "1"}}, "weighing rule 'krum': f must be a number, not '1'."),
        ({"sharing": {"name": "head", "adopt": "yes"}}, "sharing rule 'head': adopt must be True or False"),
        (
            {"objective": {"name": "proximal", "base": {"name": "cross-entropy", "balance": "1"}}},
            "base: balance must be a number, not '1'.",
        ),
    ],
)
def test_text_and_truth_values_are_no_numbers(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as error:
        sy.Algorithm(**settings)
    assert words in str(error.value)


def test_numbers_of_numpy_and_torch_are_numbers() -> None:
    for lr in (np.float32(0.5), torch.tensor(0.5), 1):
        assert sy.Algorithm(training={"lr": lr}).training.lr == float(lr)
    assert sy.Algorithm(sharing={"name": "head", "adopt": False}).sharing == Head(adopt=False)


def test_packages_are_reached_from_the_first_import_without_being_imported_with_it() -> None:
    program = """
import sys
import steelyard as sy
assert "torch" not in sys.modules and "steelyard.objectives" not in sys.modules
for name in ("attacks", "combining", "engines", "objectives", "observers", "sharing", "weighing"):
    assert name in dir(sy)
    assert getattr(sy, name) is sys.modules[f"steelyard.{name}"]
assert sy.objectives.Proximal().mu == 0.01
try:
    sy.objective
except AttributeError as error:
    assert "no attribute 'objective'" in str(error)
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True)
