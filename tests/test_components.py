"""Components are found by name, and their settings are checked against their signatures."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

from steelyard import components
from steelyard.errors import InputError, unknown
from steelyard.objectives import CrossEntropy, Proximal
from steelyard.weighing import Samples

MINE = """
CONSTANT = 3


def greet(word: str, times: int = 2, *, loud: bool = False):
    return {"word": word, "times": times, "loud": loud}


def anything(**settings):
    return settings


def unannotated(size=3):
    return size


def puzzling(size: "Nowhere" = 3):
    return size


def needs_two(labels, clients, least: int = 1):
    return {"labels": labels, "clients": clients, "least": least}


class Thing:
    def __init__(self, width: int, label: str = "thing"):
        self.width = width
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's own, by a name that no other test uses."""
    name = f"users_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize("family", components.FAMILIES)
def test_names_are_all_public_members_in_kebab_case_without_the_base(family: str) -> None:
    module = importlib.import_module(components.FAMILIES[family].module)
    members = {name: getattr(module, name) for name in module.__all__}
    concrete = {name for name, member in members.items() if not inspect.isabstract(member)}
    found = components.names(family)
    assert {name.replace("-", "") for name in found} == {name.lower().replace("_", "") for name in concrete}
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name) for name in found)


def test_a_class_and_a_function_are_named_the_same_way() -> None:
    assert components.names("objectives")["cross-entropy"] is CrossEntropy
    assert "light-cnn" in components.names("models")
    assert "a-little-is-enough" in components.names("attacks")
    assert {"objective", "weigher"}.isdisjoint(
        [*components.names("objectives"), *components.names("weighing")]
    )


def test_find_gives_the_member() -> None:
    assert components.find("weighing", "samples") is Samples


def test_an_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(InputError, match=r"unknown weighing rule 'unifrom': did you mean 'uniform'\?"):
        components.find("weighing", "unifrom")


def test_a_name_that_is_near_to_none_offers_all() -> None:
    with pytest.raises(InputError, match=r"unknown weighing rule 'zzz': choose from .*samples.*uniform"):
        components.find("weighing", "zzz")


def test_unknown_without_valid_names_says_so() -> None:
    assert str(unknown("setting", "size", [])) == "unknown setting 'size': there are none."


def test_a_factory_of_the_users_own_is_imported_and_called(mine: str) -> None:
    choice = {"name": f"{mine}:greet", "word": "hi", "loud": True}
    assert components.build("models", choice) == {"word": "hi", "times": 2, "loud": True}


def test_a_class_of_the_users_own_is_checked_like_a_function(mine: str) -> None:
    assert components.build("models", {"name": f"{mine}:Thing", "width": 3}).width == 3
    with pytest.raises(InputError, match="width should be a valid integer"):
        components.complete("models", {"name": f"{mine}:Thing", "width": "wide"})


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("no_such_module_anywhere:factory", "No module named"),
        ("{mine}:missing", "no attribute 'missing'"),
        ("{mine}:CONSTANT", "is not callable"),
        (":factory", "cannot be imported"),
    ],
)
def test_what_cannot_be_imported_or_called_is_bad_input(mine: str, name: str, reason: str) -> None:
    name = name.format(mine=mine)
    with pytest.raises(InputError, match=reason) as caught:
        components.find("models", name)
    assert f"model {name!r}" in str(caught.value)


def test_a_setting_of_the_wrong_type_names_the_rule_and_the_key() -> None:
    with pytest.raises(InputError, match=r"weighing rule 'samples'.*cap should be .*, not 'lots'\.$"):
        components.complete("weighing", {"name": "samples", "cap": "lots"})


def test_an_unknown_setting_offers_the_nearest_and_names_the_rule() -> None:
    with pytest.raises(InputError, match=r"'hiden'.*model 'mlp': did you mean 'hidden'\?"):
        components.complete("models", {"name": "mlp", "hiden": 3})


def test_what_the_run_provides_is_not_a_setting() -> None:
    with pytest.raises(InputError, match=r"unknown setting.*'num_classes'"):
        components.complete("models", {"name": "mlp", "num_classes": 3})


def test_a_missing_setting_without_default_is_named(mine: str) -> None:
    with pytest.raises(InputError, match=rf"model '{mine}:greet' needs the setting 'word'"):
        components.complete("models", {"name": f"{mine}:greet"})


def test_defaults_are_filled_in_and_given_settings_win() -> None:
    assert components.complete("models", {"name": "mlp", "layers": 3}) == {
        "name": "mlp",
        "hidden": 64,
        "layers": 3,
    }


def test_values_are_brought_to_their_annotated_type() -> None:
    mu = components.complete("objectives", {"name": "proximal", "mu": 1})["mu"]
    assert (mu, type(mu)) == (1.0, float)


def test_a_nested_default_is_written_out_as_a_table() -> None:
    assert components.complete("objectives", {"name": "proximal"})["base"] == {
        "name": "cross-entropy",
        "label_smoothing": 0.0,
        "balance": 0.0,
        "class_weights": None,
    }


@pytest.mark.parametrize(
    ("base", "smoothing"),
    [("cross-entropy", 0.0), ({"name": "cross-entropy", "label_smoothing": 0.1}, 0.1)],
)
def test_a_nested_choice_may_be_a_name_or_a_table(base: object, smoothing: float) -> None:
    choice = {"name": "proximal", "mu": 0.5, "base": base}
    assert components.complete("objectives", choice)["base"] == {
        "name": "cross-entropy",
        "label_smoothing": smoothing,
        "balance": 0.0,
        "class_weights": None,
    }
    assert components.build("objectives", choice) == Proximal(0.5, CrossEntropy(smoothing))


def test_a_nested_choice_nests_further() -> None:
    choice = {"name": "proximal", "base": {"name": "proximal", "mu": 2.0, "base": "cross-entropy"}}
    assert components.build("objectives", choice) == Proximal(base=Proximal(2.0))


def test_mistakes_in_a_nested_choice_are_found() -> None:
    with pytest.raises(InputError, match="objective 'cross-entropi'"):
        components.complete("objectives", {"name": "proximal", "base": "cross-entropi"})
    with pytest.raises(InputError, match="did you mean 'label_smoothing'"):
        components.complete(
            "objectives", {"name": "proximal", "base": {"name": "cross-entropy", "smoothing": 1}}
        )


def test_context_is_passed_only_to_factories_that_take_it(mine: str) -> None:
    context = {"labels": [0, 1], "clients": 2, "groups": None, "generator": object()}
    built = components.build("partitions", {"name": f"{mine}:needs_two", "least": 5}, **context)
    assert built == {"labels": [0, 1], "clients": 2, "least": 5}


def test_a_factory_with_open_keywords_takes_anything(mine: str) -> None:
    choice = {"name": f"{mine}:anything", "size": 3, "mood": "good"}
    assert components.build("models", choice) == {"size": 3, "mood": "good"}


@pytest.mark.parametrize("name", ["unannotated", "puzzling"])
def test_annotations_that_are_missing_or_unreadable_are_not_checked(mine: str, name: str) -> None:
    assert components.build("models", {"name": f"{mine}:{name}", "size": "large"}) == "large"


def test_losses_of_torch_are_named_although_their_weights_cannot_be_in_a_spec() -> None:
    choice = {"name": "torch.nn:CrossEntropyLoss", "label_smoothing": 0.1}
    completed = components.complete("objectives", choice)
    assert components.build("objectives", completed).label_smoothing == 0.1
    with pytest.raises(InputError, match="weight should be an instance of Tensor"):
        components.complete("objectives", {**choice, "weight": [1.0, 2.0]})


def test_a_default_that_a_spec_cannot_store_stays_in_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "def net(num_classes, width=3, activation=print): return activation, width"
    (tmp_path / "unplain.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert components.complete("models", {"name": "unplain:net"}) == {"name": "unplain:net", "width": 3}
    assert components.build("models", {"name": "unplain:net"}, num_classes=2) == (print, 3)


def test_a_module_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module.py").write_text("def net(:")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=r"broken_module:net.*SyntaxError"):
        components.find("models", "broken_module:net")
