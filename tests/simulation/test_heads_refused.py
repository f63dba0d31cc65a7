"""Heads, models and data that do not fit are refused when the federation is built."""

from dataclasses import replace

import pytest
from bodies import AVG, clients, convolution, data, federation, normalised, perceptron
from torch import nn

from steelyard.data.clients import Client
from steelyard.errors import InputError
from steelyard.sharing import WholeModel


@pytest.mark.parametrize(
    ("changed", "first", "second"),
    [
        (convolution(embed=6), "embedding 6 and 3 classes", "embedding 4 and 3 classes"),
        (convolution(classes=4), "embedding 4 and 4 classes", "embedding 4 and 3 classes"),
        (
            nn.Sequential(convolution()[:-1], nn.Linear(4, 3, bias=False)),  # type: ignore[index]
            "embedding 4 and 3 classes without bias",
            "embedding 4 and 3 classes",
        ),
    ],
    ids=["embedding", "classes", "bias"],
)
def test_heads_that_do_not_fit_are_refused_when_the_federation_is_built(
    changed: nn.Module, first: str, second: str
) -> None:
    message = f"^client 'turin' has a head of {first}, but client 'ghent' has one of {second}; all must agree"
    with pytest.raises(InputError, match=message):
        federation(AVG, clients(turin=changed))


def test_classes_that_a_head_has_no_output_for_are_refused() -> None:
    two = {"ghent": perceptron(classes=2), "oslo": normalised(classes=2), "turin": convolution(classes=2)}
    with pytest.raises(InputError, match=r"client 'ghent' has classes 0 to 2, but the model has only 2"):
        federation(AVG, clients(**two))


def test_a_model_that_cannot_take_its_clients_inputs_is_refused_by_name() -> None:
    with pytest.raises(
        InputError, match=r"the model cannot take the inputs of client 'oslo', of shape \(7,\)"
    ):
        federation(AVG, clients(oslo=perceptron()))


def test_a_client_without_a_model_is_refused_if_the_federation_has_none() -> None:
    members = [*clients()[:2], Client("turin", data(9, 9, 0))]
    with pytest.raises(InputError, match="client 'turin' brings no model, and the federation has none"):
        federation(AVG, members)


def test_models_of_their_own_are_refused_where_whole_models_are_shared() -> None:
    with pytest.raises(
        InputError, match="client 'ghent' brings a model of its own, but whole models are shared"
    ):
        federation(replace(AVG, sharing=WholeModel()), model=perceptron())
