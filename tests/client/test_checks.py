"""What cannot work is refused when a federation is built, in a sentence that names the culprit."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import steelyard as sy
from steelyard.client.checks import check_fit
from steelyard.data.clients import Client
from steelyard.errors import InputError
from steelyard.objectives import CrossEntropy, Objective, Proximal, SquaredError
from steelyard.simulation import SimulatedFederation as Federation


def data(count: int = 6, width: int = 4, classes: int = 3) -> tuple[Tensor, Tensor]:
    return torch.ones(count, width), torch.arange(count) % classes


class Lambda(nn.Module):
    """A linear layer, and something done to what it returns."""

    def __init__(self, change: Any) -> None:
        super().__init__()
        self.linear, self.change = nn.Linear(4, 3), change

    def forward(self, inputs: Tensor) -> Any:
        return self.change(self.linear(inputs))


GOOD = {"oslo": data(), "turin": data()}
MODEL = nn.Linear(4, 3)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        pytest.param({**GOOD, "rome": data(0)}, "client 'rome' has no examples", id="empty"),
        pytest.param(
            [Client("rome", data()), Client("oslo", data()), Client("rome", data())],
            "two clients are called 'rome'",
            id="same-id",
        ),
        pytest.param({1: data(), "1": data()}, "two clients are called '1'", id="same-id-as-text"),
        pytest.param({}, "at least one client", id="no-clients"),
        pytest.param([], "at least one client", id="empty-list"),
        pytest.param(
            {**GOOD, "rome": data(width=5)}, r"client 'rome' has inputs of shape \(5,\)", id="other-shape"
        ),
        pytest.param(
            {"rome": data(width=5), "turin": data(width=5)},
            r"cannot take the inputs of client 'rome', of shape \(5,\)",
            id="model-cannot-take-it",
        ),
        pytest.param(
            {**GOOD, "rome": data(classes=4)},
            "client 'rome' has classes 0 to 3, .* only 3 outputs",
            id="too-few-outputs",
        ),
        pytest.param(
            {**GOOD, "rome": (torch.ones(6, 4), torch.arange(6) % 3 - 1)},
            "client 'rome' has the class -1",
            id="negative-class",
        ),
        pytest.param(
            {**GOOD, "rome": (torch.ones(6, 4), torch.rand(6))},
            "client 'rome' has targets of torch.float32",
            id="float-targets",
        ),
        pytest.param(
            {**GOOD, "rome": (torch.ones(6, 4), torch.ones(6, 1, dtype=torch.int64))},
            r"client 'rome' has targets of .* shape \(6, 1\)",
            id="column-of-targets",
        ),
        pytest.param(
            {**GOOD, "rome": (torch.ones(6, 4), torch.ones(5))}, "client 'rome', train", id="lengths-differ"
        ),
        pytest.param(
            {**GOOD, "rome": Client("rome", data(), data(classes=5))},
            "client 'rome', test has classes 0 to 4",
            id="client-test-classes",
        ),
        pytest.param(
            {**GOOD, "rome": Client("rome", data(), data(width=3))},
            r"client 'rome', test has inputs of shape \(3,\)",
            id="client-test-shape",
        ),
        pytest.param({**GOOD, "rome": data()[0]}, "client 'rome' has no targets; give", id="no-targets"),
        pytest.param(
            {"oslo": data(), "rome": Client("rome", data(), held_out=data()[0].numpy())},
            r"client 'rome', held out has no targets; give \(inputs, targets\)",
            id="no-targets-held-out",
        ),
        pytest.param(
            {**GOOD, "rome": (torch.ones(6, 4), torch.tensor([0, 1, 2, 255, 0, 255]))},
            r"client 'rome' has classes 0 to 255, .*; if 255 marks .* sy.Task\(ignore_index=255\)",
            id="mark",
        ),
        pytest.param(
            {"oslo": [(torch.ones(4), 0), (torch.ones(4), 255)], "rome": data()},
            r"client 'oslo' has classes 0 to 255, .*sy.Task\(ignore_index=255\)",
            id="mark-in-items",
        ),
        pytest.param(
            {**GOOD, "rome": Client("rome", TensorDataset(*data()), data(classes=5))},
            "client 'rome', test has classes",
            id="tensor-dataset",
        ),
    ],
)
def test_a_client_that_does_not_fit_is_named(clients: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Federation(clients, MODEL)


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (data(classes=9), "the test set has classes 0 to 5"),
        (data(width=9), r"the test set has inputs of shape \(9,\)"),
        ((torch.ones(3, 4), torch.ones(2)), "test: 3 inputs but 2 targets"),
        (42, "test: give .* not int"),
    ],
)
def test_a_common_test_set_that_does_not_fit_is_named(test: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Federation(GOOD, MODEL, test=test)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(7, 3), r"cannot take the inputs of client 'oslo', of shape \(4,\)"),
        (nn.Conv2d(1, 3, 3), "cannot take the inputs of client 'oslo'"),
        (
            Lambda(lambda logits: logits.unsqueeze(1)),
            r"returns a tensor of shape \(2, 1, 3\), and the targets are .*say what",
        ),
        (Lambda(lambda logits: logits[:, 0]), r"returns a tensor of shape \(2,\), and the targets"),
        (Lambda(lambda logits: (logits, logits)), r"returns \(a tensor of shape \(2, 3\), .*sy.Task"),
        (nn.Linear(4, 2), "client 'oslo' has classes 0 to 2, .* only 2 outputs"),
        (nn.Identity(), "Identity has no parameters"),
    ],
)
def test_a_model_that_does_not_fit_the_data_is_refused(model: nn.Module, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Federation(GOOD, model)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"rounds": -1}, "rounds must be at least 1"),
        ({"evaluate_every": 0}, "evaluate_every must be at least 1"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"clients_per_round": 0}, "clients_per_round must be at least 1"),
        ({"clients_per_round": 3}, "clients_per_round is 3, but there are 2 clients"),
    ],
)
def test_a_setting_of_the_federation_out_of_range_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Federation(GOOD, MODEL, **settings)


@pytest.mark.parametrize("settings", [{"rounds": 1}, {"clients_per_round": 2}, {"patience": None}])
def test_settings_at_the_edge_are_accepted(settings: dict[str, Any]) -> None:
    federation = Federation(GOOD, MODEL, **settings)
    assert all(getattr(federation, name) == value for name, value in settings.items())


def test_more_outputs_than_classes_and_a_single_example_are_accepted() -> None:
    federation = Federation({"oslo": data(1)}, nn.Linear(4, 9), rounds=1)
    assert federation.run().history[0]["used"] == 1


def test_the_check_trains_nothing_and_needs_only_two_examples() -> None:
    sizes: list[int] = []
    model = Lambda(lambda logits: sizes.append(len(logits)) or logits)
    federation = Federation(GOOD, model)
    assert sizes == [2]
    assert federation.model.training
    assert torch.equal(federation.model.state_dict()["linear.weight"], model.linear.weight)


NUMBERS = (torch.ones(6, 4), torch.rand(6, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize(
    ("model", "targets", "message"),
    [
        (nn.Linear(4, 2), NUMBERS[1], r"a tensor of shape \(2, 2\), and the targets"),
        (nn.Linear(4, 1), NUMBERS[1] * math.inf, "infinite or not a number"),
        (nn.Linear(4, 1), NUMBERS[1] * math.nan, "infinite or not a number"),
    ],
)
def test_numbers_for_targets_that_do_not_fit_are_refused(
    model: nn.Module, targets: Tensor, message: str
) -> None:
    with pytest.raises(InputError, match=f"client 'oslo'.*{message}"):
        check_fit(model, [Client("oslo", (NUMBERS[0], targets))], None)


@pytest.mark.parametrize(
    ("clients", "outputs", "objective", "message"),
    [
        (NUMBERS, 1, CrossEntropy(), "has numbers .* CrossEntropy needs class numbers; .*squared-error"),
        (
            NUMBERS,
            1,
            Proximal(),
            'has numbers .* Proximal needs class numbers; give it .*"proximal", "base": "squared-error"',
        ),
        (data(), 3, SquaredError(), "has class numbers .* SquaredError needs numbers; .*cross-entropy"),
    ],
)
def test_an_objective_that_wants_other_targets_is_refused(
    clients: Any, outputs: int, objective: Objective, message: str
) -> None:
    with pytest.raises(InputError, match=f"client 'oslo' {message}"):
        check_fit(nn.Linear(4, outputs), [Client("oslo", clients)], None, objective)


@pytest.mark.parametrize("objective", [None, SquaredError(), Proximal(base=SquaredError())])
def test_numbers_fit_a_model_with_one_output(objective: Objective | None) -> None:
    oslo = Client("oslo", NUMBERS, NUMBERS)
    assert check_fit(nn.Linear(4, 1), [oslo], oslo.train, objective) == 1


def test_an_empty_test_set() -> None:
    inputs, targets = torch.randn(6, 4), torch.arange(6) % 3
    empty = (inputs[:0], targets[:0])
    sy.Federation([sy.Client("a", (inputs, targets), empty)], nn.Linear(4, 3), rounds=1).run()
    with pytest.raises(InputError, match="test set is empty"):
        sy.Federation({"a": (inputs, targets)}, nn.Linear(4, 3), test=empty)


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "rmspropp"},
        {"momentum": -1},
        {"weight_decay": -1},
        {"batch_size": 1.5},
        {"lr": math.nan},
    ],
    ids=str,
)
def test_training_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        sy.Training(**settings)


@pytest.mark.parametrize("settings", [{"clip": "mean"}, {"max_examples": 0}, {"lr": math.nan}], ids=str)
def test_server_settings_that_make_no_sense(settings: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(settings))):
        sy.Server(**settings)


def test_classes_below_0_may_be_padding_and_those_above_are_told_the_range() -> None:
    inputs, labels = data()
    with pytest.raises(
        InputError, match=r"oslo' has the class -1, but classes start at 0; .*ignore_index=-1"
    ):
        Federation({"oslo": (inputs, labels - 1)}, MODEL)
    skipping = sy.Task(ignore_index=-1)
    assert Federation({"oslo": (inputs, labels - 1)}, MODEL, task=skipping, rounds=1).run().model is not None
    with pytest.raises(
        InputError, match=r"classes 1 to 3, but .* only 3 outputs, for classes from 0 to 2\.$"
    ):
        Federation({"oslo": (inputs, labels + 1)}, MODEL)


def test_labels_of_float_are_known_from_the_targets_of_all_clients() -> None:
    zeros, ones, both = torch.zeros(6), torch.ones(6), torch.arange(6.0) % 2
    numbers = torch.tensor([0.0, 1.0, 1.0, 0.0, 0.5, 2.0])

    def kind(first: Any, *others: Any) -> str:
        clients = {str(place): (torch.ones(6, 4), each) for place, each in enumerate((first, *others))}
        return Federation(clients, nn.Linear(4, 1)).workload.learner.task.targets

    assert kind(both) == kind(zeros, ones) == "labels"
    assert kind(zeros) == kind(zeros, zeros) == kind(zeros, numbers) == kind(both, numbers) == "numbers"
    items = [(torch.ones(4), float(each % 2)) for each in range(6)]
    assert Federation({"oslo": items}, nn.Linear(4, 1)).workload.learner.task.targets == "labels"
    with pytest.raises(InputError, match=r"'1' has labels .* neither 0 nor 1; .*sy.Task.targets='numbers'"):
        kind(both.unsqueeze(1), numbers.unsqueeze(1))
