import copy
from pathlib import Path
from typing import Any

import pytest
from torch.nn import HuberLoss
from torch.optim import SGD

from steelyard.errors import InputError
from steelyard.specs.schema import Spec, load_spec
from steelyard.specs.sources import expand, parse_override, presets


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def refused(source: Any = None, overrides: dict[str, Any] | None = None) -> str:
    """The sentence with which a spec is refused."""
    with pytest.raises(InputError) as caught:
        load_spec(source, overrides)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_every_layer_sets_what_the_later_ones_leave_alone(tmp_path: Path) -> None:
    path = write(tmp_path, 'preset = "fedprox"\nrounds = 7\nseed = 7\n[training]\nlr = 0.7\nmomentum = 0.7\n')
    spec = load_spec(path, {"training.momentum": 0.9, "seed": 9})
    assert spec.training["batch_size"] == 32  # defaults
    assert spec.objective["mu"] == 0.1  # preset
    assert (spec.rounds, spec.training["lr"]) == (7, 0.7)  # file
    assert (spec.seed, spec.training["momentum"]) == (9, 0.9)  # override


def test_a_file_beats_the_preset_it_names(tmp_path: Path) -> None:
    spec = load_spec(write(tmp_path, 'preset = "fedprox"\nobjective = { mu = 0.7 }\n'))
    assert (spec.objective["name"], spec.objective["mu"]) == ("proximal", 0.7)


def test_an_override_beats_a_preset_and_keeps_the_rest_of_it() -> None:
    spec = load_spec("fedavg-mnist-shards", {"data.clients": 5})
    assert spec.data.clients == 5
    assert spec.data.partition["shards"] == 300


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_valid_named_and_described(name: str) -> None:
    spec = load_spec(name)
    assert spec.name == name
    assert spec.about


def test_a_table_may_name_a_preset_and_is_not_changed() -> None:
    table = {"preset": "fedprox", "data": {"clients": 3}}
    before = copy.deepcopy(table)
    assert load_spec(table).objective["name"] == "proximal"
    assert table == before


def test_a_file_without_a_name_is_called_like_the_file(tmp_path: Path) -> None:
    assert load_spec(write(tmp_path, "rounds = 1\n", "trial-3.toml")).name == "trial-3"
    assert load_spec(write(tmp_path, 'name = "other"\n')).name == "other"


def test_another_name_drops_the_settings_of_the_one_it_replaces() -> None:
    for partition in ("iid", {"name": "iid"}):
        assert load_spec({"data": {"partition": partition}}).data.partition == {"name": "iid"}
    assert load_spec("fedprox", {"objective": "cross-entropy"}).objective == {
        "name": "cross-entropy",
        "label_smoothing": 0.0,
        "balance": 0.0,
        "class_weights": None,
    }


@pytest.mark.parametrize("objective", ["proximal", {"name": "proximal"}, {}])
def test_the_same_name_keeps_the_settings(objective: Any) -> None:
    assert load_spec("fedprox", {"objective": objective}).objective["mu"] == 0.1


def test_the_data_seed_follows_the_seed_unless_it_is_set() -> None:
    assert load_spec(None, {"seed": 5}).data.seed == 5
    spec = load_spec({"data": {"seed": 3}}, {"seed": 5})
    assert (spec.seed, spec.data.seed) == (5, 3)
    assert load_spec({"data": {"seed": 0}}, {"seed": 5}).data.seed == 0


def test_none_unsets() -> None:
    assert load_spec({"patience": 3}, {"patience": None}).patience is None
    assert load_spec({"data": {"shift": "rotation"}}, {"data.shift": None}).data.shift is None


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"seed": 4, "data.seed": 2, "about": "ünïcode"},
        {"patience": 2, "clients_per_round": 3, "weighing": {"cap": 2}},
        {"data.shift": "rotation", "server.clip": "median", "training.steps": 5},
        {"objective": {"name": "proximal", "base": {"name": "cross-entropy", "label_smoothing": 0.1}}},
    ],
)
def test_a_spec_written_as_toml_reads_back_as_itself(tmp_path: Path, overrides: dict[str, Any]) -> None:
    spec = load_spec(None, overrides)
    again = load_spec(write(tmp_path, spec.to_toml()))
    assert again == spec
    assert again.fingerprint() == spec.fingerprint()


def test_the_fingerprint_ignores_name_and_about() -> None:
    assert load_spec({"name": "other", "about": "words"}).fingerprint() == load_spec().fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"rounds": 31},
        {"clients_per_round": 5},
        {"evaluate_every": 2},
        {"patience": 3},
        {"data.clients": 11},
        {"data.seed": 1},
        {"data.partition.alpha": 0.31},
        {"data.shift": "rotation"},
        {"model.hidden": 65},
        {"objective": "proximal"},
        {"weighing": "uniform"},
        {"weighing.cap": 3},
        {"training.lr": 0.2},
        {"server.momentum": 0.5},
    ],
)
def test_the_fingerprint_notices_everything_else(change: dict[str, Any]) -> None:
    assert load_spec(None, change).fingerprint() != load_spec().fingerprint()


def test_the_fingerprint_does_not_depend_on_how_a_spec_was_given() -> None:
    said = load_spec({"rounds": 30, "model": "mlp", "training": {"lr": 0.1}, "data": {"clients": 10}})
    assert said.fingerprint() == load_spec().fingerprint()


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("rounds=50", ("rounds", 50)),
        ("training.lr=0.1", ("training.lr", 0.1)),
        ("training.lr=1e-3", ("training.lr", 0.001)),
        ("model=light-cnn", ("model", "light-cnn")),
        ("model=my.module:factory", ("model", "my.module:factory")),
        ('name="50"', ("name", "50")),
        ("flag=true", ("flag", True)),
        ("flag=false", ("flag", False)),
        ("sizes=[1, 2]", ("sizes", [1, 2])),
        ("patience=none", ("patience", None)),
        ("about=a=b", ("about", "a=b")),
        ("about=", ("about", "")),
        ("objective={name='proximal', mu=1.0}", ("objective", {"name": "proximal", "mu": 1.0})),
    ],
)
def test_an_override_is_read_as_toml_or_else_as_a_string(text: str, parsed: tuple[str, Any]) -> None:
    key, value = parse_override(text)
    assert (key, value, type(value)) == (*parsed, type(parsed[1]))


@pytest.mark.parametrize("text", ["rounds", "=3", ""])
def test_what_is_not_key_and_value_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not of the form key=value"):
        parse_override(text)


def test_dotted_keys_become_tables() -> None:
    assert expand({"data.clients": 20, "data.partition.alpha": 0.1, "seed": 1}) == {
        "data": {"clients": 20, "partition": {"alpha": 0.1}},
        "seed": 1,
    }


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"rouds": 3}, "unknown key 'rouds': did you mean 'rounds'?"),
        ({"data": {"cleints": 3}}, "unknown key 'data.cleints': did you mean 'data.clients'?"),
        ({"training": {"learning_rate": 1}}, "learning_rate"),
        ({"model": "mlpp"}, "model 'mlpp': did you mean 'mlp'?"),
        ({"data": {"shift": "rotat"}}, "did you mean 'rotation'?"),
        ({"preset": "fedavg", "objective": {"smoothing": 1}}, "did you mean 'label_smoothing'?"),
        ({"data": {"dataset": "cifar"}}, "data.dataset: unknown data set 'cifar': did you mean 'cifar10'?"),
        (
            {"adversaries": 3},
            "adversaries should be a table, not 3; set a key in it, such as adversaries.count.",
        ),
    ],
)
def test_an_unknown_key_or_name_is_named_with_the_nearest(table: dict[str, Any], sentence: str) -> None:
    assert sentence in refused(table)


HINTS = {
    "lr=0.1": "'training.lr' or 'server.lr'",
    "learning_rate=0.1": "'training.lr' or 'server.lr'",
    "training.learning_rate=0.1": "'lr'",
    "momentum=0.9": "'training.momentum' or 'server.momentum'",
    "epochs=3": "'training.epochs'",
    "local_epochs=3": "'training.epochs'",
    "batchsize=8": "'training.batch_size'",
    "clients=20": "'data.clients'",
    "num_clients=20": "'data.clients'",
    "num_rounds=20": "'rounds'",
    "alpha=0.1": "'data.partition.alpha'",
    "data.alpha=0.1": "'data.partition.alpha'",
    "dataset=mnist": "'data.dataset'",
    "attack=gaussian": "'adversaries.attack'",
    "adversaries.attack=noise": "'gaussian'",
    "adversaries.attack=signflip": "'sign-flip'",
    "combining=avg": "'mean'",
    "combining=average": "'mean'",
    "combining=fedavg": "'mean'",
    "weighing=FedAvg": "'samples'",
    "data.partition=noniid": "'dirichlet'",
    "data.partition=non_iid": "'dirichlet'",
    "data.dataset=MNIST": "'mnist'",
    "data.dataset=cifar": "'cifar10'",
    "training.optimizer=Adma": "'adam'",
    "model=cnn": "'hybrid-cnn' or 'light-cnn'",
    "objective=mse": "'squared-error'",
    "engine=gpu": "'vectorized'",
    "device=cuda": "'engine'",
}


@pytest.mark.parametrize("text", HINTS)
def test_words_of_the_field_and_slips_lead_to_the_name_that_is_meant(text: str) -> None:
    assert refused(None, dict([parse_override(text)])).endswith(f": did you mean {HINTS[text]}?")


@pytest.mark.parametrize("text", ["zzz=1", "mu=0.1", "trm=1", "weighing=mean", "data.noise=0.1"])
def test_a_word_that_is_near_to_nothing_gets_no_hint(text: str) -> None:
    assert "did you mean" not in refused(None, dict([parse_override(text)]))


def test_a_rule_for_another_question_and_a_setting_of_another_rule_are_found() -> None:
    assert refused({"weighing": "median"}) == "unknown weighing rule 'median': it belongs to `combining`."
    assert refused({"combining": "proximal"}) == (
        "unknown combining rule 'proximal': it belongs to `objective`."
    )
    assert refused(None, {"engine": {"name": "pool", "device": "cuda"}}) == (
        "engine 'pool' has no setting 'device': it is a setting of auto, serial, vectorized."
    )
    assert refused(None, {"weighing.f": 2}).endswith("it is a setting of krum, multi-krum, nnm.")


def test_a_preset_among_the_settings_and_paths_that_are_no_specs_are_explained(tmp_path: Path) -> None:
    assert refused("fedavg", {"preset": "fedprox"}).startswith("preset is not a setting: name it first")
    assert refused(f"{tmp_path}/runs/*").endswith(
        "/runs/* is no preset, and there is no such file or folder."
    )
    assert "a spec is the name of a preset, or a file that ends with .toml" in refused(tmp_path)
    (tmp_path / "spec.toml").write_text("")
    assert refused(tmp_path).endswith(f"name the spec in it, {tmp_path / 'spec.toml'}.")


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("rounds", "many", "integer"),
        ("rounds", 0, "greater than or equal to 1"),
        ("rounds", None, "integer"),
        ("training.lr", "fast", "number"),
        ("training.optimizer", "sdg", "did you mean 'sgd'?"),
        ("data.clients", "all", "integer"),
        ("data.clients", 0, "greater than or equal to 1"),
        ("data", 3, "not 3"),
        ("training", 3, "table"),
        ("model", 3, "a name or a table with a name"),
        ("clients_per_round", 0, "greater than or equal to 1"),
    ],
)
def test_a_wrong_value_is_named_with_its_key_and_what_was_expected(
    key: str, value: Any, expected: str
) -> None:
    sentence = refused(None, {key: value})
    assert key in sentence
    assert expected in sentence
    assert repr(value) in sentence


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("objective", HuberLoss()),
        ("objective.base", HuberLoss()),
        ("training.optimizer", SGD),
        ("training.schedule", print),
        ("observers", [{"name": "csv", "path": Path("rounds.csv")}]),
    ],
)
def test_objects_are_refused_because_a_spec_is_also_a_file(place: str, value: object) -> None:
    sentence = refused("fedprox", {place: value})
    assert sentence.startswith(f"{place} is an object, ")
    assert "give its name" in sentence


@pytest.mark.parametrize("name", ["a/b", "", "../up", "two words"])
def test_a_name_that_is_no_folder_name_is_refused(name: str) -> None:
    assert refused({"name": name}).startswith("name may contain only letters")


@pytest.mark.parametrize("source", ["fedproxx", Path("fedproxx")])
def test_an_unknown_preset_offers_the_nearest(source: str | Path) -> None:
    assert refused(source) == "unknown preset 'fedproxx': did you mean 'fedprox'?"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path / "gone.toml") == (
        f"cannot read the spec {tmp_path / 'gone.toml'}: No such file or directory."
    )


@pytest.mark.parametrize("content", [b"rounds = = 3", b"\x89PNG\r\n\xff\xfe", b"a = 1\na = 2\n"])
def test_a_file_that_is_not_toml_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    assert refused(path).startswith(f"the spec {path} is not valid TOML: ")


def test_a_folder_is_not_a_spec(tmp_path: Path) -> None:
    (tmp_path / "folder.toml").mkdir()
    assert "cannot read the spec" in refused(tmp_path / "folder.toml")


def test_a_spec_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="frozen"):
        Spec().rounds = 3  # type: ignore[misc]


@pytest.mark.parametrize("keys", [("objective", "objective.mu"), ("objective.mu", "objective")])
def test_a_name_and_its_setting_may_come_in_any_order(keys: tuple[str, str]) -> None:
    values = {"objective": "proximal", "objective.mu": 0.5}
    assert load_spec(None, {key: values[key] for key in keys}).objective["mu"] == 0.5


def test_a_setting_of_a_nested_choice_keeps_the_choice() -> None:
    base = load_spec("fedprox", {"objective.base.label_smoothing": 0.1}).objective["base"]
    assert base == {"name": "cross-entropy", "label_smoothing": 0.1, "balance": 0.0, "class_weights": None}


@pytest.mark.parametrize("given", ["fedproxx", ["fedprox"]])
def test_a_file_with_an_unknown_preset_is_refused(given: object) -> None:
    with pytest.raises(InputError, match="did you mean 'fedprox'"):
        load_spec({"preset": given})


@pytest.mark.parametrize(
    ("override", "part"),
    [({"objective.base": 3}, "base"), ({"rounds": True}, "rounds"), ({"objective": 3}, "objective")],
)
def test_values_of_the_wrong_kind_are_named(override: dict[str, object], part: str) -> None:
    with pytest.raises(InputError, match=part):
        load_spec("fedprox", override)
