"""The head travels, and only the head: where it lies, what goes back into a model, what stays behind."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steelyard import components
from steelyard.client.learner import Learner
from steelyard.data.examples import examples
from steelyard.errors import InputError
from steelyard.layout import layout_of, tensors_of
from steelyard.nn.heads import head_name
from steelyard.nn.variational import bayesian
from steelyard.objectives import CrossEntropy, Objective
from steelyard.settings import Training
from steelyard.sharing import Head, Sharing
from steelyard.types import EMPTY, Broadcast, Message, State

STRATEGIES = [(adopt, common) for adopt in (True, False) for common in (True, False)]
CROSS_ENTROPY, SHARED = CrossEntropy(), Head()


class Named(nn.Module):
    """A model with names, running statistics, and a head that is not the last thing that it was given."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.body = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
        self.head = nn.Linear(2, 3)
        self.heady = nn.Linear(3, 3)  # what begins like the head's name is not the head

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.heady(self.head(self.body(inputs)))
        return outputs


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2), nn.Linear(2, 3), nn.Softplus()
    )


def read(model: nn.Module, sharing: Sharing = SHARED) -> Message:
    return sharing.read(tensors_of(model), sharing.layout(model))


def values(state: State) -> dict[str, list[Any]]:
    return {name: value.tolist() for name, value in state.items()}


def part(model: nn.Module, prefix: str, before: str = "") -> dict[str, list[Any]]:
    """The tensors with names that begin, or if `before` says "not ", do not begin so."""
    return {
        name: value.tolist()
        for name, value in tensors_of(model).items()
        if name.startswith(prefix) != (before == "not ")
    }


# Which layer it is


def test_the_head_is_the_last_linear_layer() -> None:
    assert head_name(network()) == "4"
    assert head_name(Named()) == "heady"
    assert head_name(bayesian(network(), last=1)) == "4"
    assert head_name(nn.Linear(2, 3)) == ""


def test_a_head_that_is_named_is_taken() -> None:
    assert head_name(Named(), "head") == "head"
    assert [entry.name for entry in Head("head").layout(Named()).entries] == ["head.weight", "head.bias"]
    assert Head("body").layout(Named()).prefix == "body."
    assert Head("body.3").layout(Named()).size == 12


def test_a_name_that_is_not_there_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InputError, match=r"unknown layer 'hed' of the model Named: did you mean 'head'\?"):
        Head("hed").layout(Named())
    with pytest.raises(InputError, match="unknown layer ''"):
        Head("").layout(Named())


def test_a_model_without_a_linear_layer_must_name_its_head() -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Conv2d(2, 3, 3), nn.Flatten())
    with pytest.raises(InputError, match="Sequential has no linear layer; give the name of its head"):
        Head().layout(model)
    assert Head("2").layout(model).size == 57


def test_a_head_without_parameters_is_refused() -> None:
    with pytest.raises(InputError, match=r"the head '5' of the model Sequential has no parameters"):
        Head("5").layout(network())


def test_a_spec_can_name_it() -> None:
    settings = {"layer": "4", "adopt": False, "common": False, "posterior": True}
    assert components.build("sharing", {"name": "head", **settings}) == Head("4", False, False, True)
    assert components.build("sharing", {"name": "head"}) == Head()


# The layout


def test_the_layout_has_the_head_at_the_start_of_the_vector() -> None:
    layout = Head().layout(network())
    assert layout.prefix == "4."
    assert [(entry.name, entry.start, entry.stop) for entry in layout.entries] == [
        ("4.weight", 0, 6),
        ("4.bias", 6, 9),
    ]
    assert layout.num_parameters == layout.size == 9
    assert layout.constants == {}


def test_of_a_head_of_many_layers_everything_travels_that_would_of_a_whole_model() -> None:
    whole, layout = layout_of(Named()), Head("body").layout(Named())
    assert [entry.name for entry in layout.parameters] == [
        entry.name for entry in whole.parameters if entry.name.startswith("body.")
    ]
    assert [entry.name for entry in layout.buffers] == ["body.1.running_mean", "body.1.running_var"]
    assert layout.num_parameters == 25 + 10 + 12
    assert layout.size == 25 + 10 + 12 + 10
    assert list(layout.constants) == ["body.1.num_batches_tracked"]
    assert [entry.start for entry in layout.entries[1:]] == [entry.stop for entry in layout.entries[:-1]]


def test_a_part_of_a_layout_has_names_with_the_whole_prefix_only() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(2, 2) for _ in range(11)))
    assert [entry.name for entry in layout_of(model).within("1.").entries] == ["1.weight", "1.bias"]
    assert layout_of(model).within("").size == layout_of(model).size
    assert layout_of(model).within("nothing").size == 0
    assert layout_of(model).prefix == ""


def test_a_model_that_is_one_layer_is_all_head() -> None:
    layout = Head().layout(nn.Linear(2, 3))
    assert (layout.prefix, layout.size) == ("", 9)
    assert Head().keep(tensors_of(nn.Linear(2, 3)), layout) == {}


# There and back


def test_what_is_read_is_the_head_alone() -> None:
    model = network()
    head: Any = model[4]
    assert read(model).mean.tolist() == [*head.weight.flatten().tolist(), *head.bias.tolist()]
    assert read(model).variance is None
    assert Head().slots == {"mean"}
    assert Head().has_private_layers


def test_what_is_written_is_read_and_the_body_stays() -> None:
    model, message = network(), Message(torch.arange(9.0))
    before = part(model, "4.", "not ")
    Head().write(tensors_of(model), Head().layout(model), message, EMPTY)
    assert torch.equal(read(model).mean, message.mean)
    assert part(model, "4.", "not ") == before


@pytest.mark.parametrize(("adopt", "common"), STRATEGIES)
def test_what_a_client_keeps_and_what_it_has_at_the_start(adopt: bool, common: bool) -> None:
    model, sharing = network(), Head(adopt=adopt, common=common)
    tensors, layout = tensors_of(model), sharing.layout(model)
    body = {f"body.{name}": value for name, value in part(model, "4.", "not ").items()}
    head = {f"head.{name}": value for name, value in part(model, "4.").items()}
    assert set(body) == {f"body.{name}" for name in tensors if not name.startswith("4.")}
    assert values(sharing.keep(tensors, layout)) == (body if adopt else body | head)
    assert values(sharing.start(tensors, layout)) == (body if adopt or common else body | head)
    assert values(sharing.without_private_head(sharing.keep(tensors, layout))) == body


def test_what_is_kept_is_a_copy() -> None:
    model, sharing = network(), Head(adopt=False)
    kept = sharing.keep(tensors_of(model), sharing.layout(model))
    before = values(kept)
    with torch.no_grad():
        for tensor in [*model.parameters(), *model.buffers()]:
            tensor.add_(1)
    assert values(kept) == before


@pytest.mark.parametrize(("adopt", "common"), STRATEGIES)
def test_a_client_goes_on_from_its_body_and_from_the_right_head(adopt: bool, common: bool) -> None:
    mine, sharing, came = network(1), Head(adopt=adopt, common=common), Message(torch.arange(9.0))
    layout = sharing.layout(mine)
    kept, start = (each(tensors_of(mine), layout) for each in (sharing.keep, sharing.start))
    own, merged = part(mine, "4."), {"4.weight": came.mean[:6].view(3, 2).tolist(), "4.bias": [6.0, 7.0, 8.0]}
    for state, head in (
        (kept, merged if adopt else own),
        (start, merged if adopt or common else own),
        (sharing.without_private_head(kept), merged),
    ):
        model = network(2)  # another client's, in the same scratch model
        sharing.write(tensors_of(model), layout, came, state)
        assert part(model, "4.") == head
        assert part(model, "4.", "not ") == part(mine, "4.", "not ")


# Running statistics


def learn(
    model: nn.Module, sharing: Sharing, states: list[State], objective: Objective = CROSS_ENTROPY
) -> list[Any]:
    """Rounds of one client, which begin with what it kept before."""
    learner = Learner(objective, sharing, sharing.layout(model), Training(lr=0.1, batch_size=4), seed=0)
    random = torch.Generator().manual_seed(0)
    data = examples(2 + torch.randn(8, 4, generator=random), torch.arange(8) % 3)
    scratch = learner.working_model(model)
    return [
        learner.train(scratch, "a", data, Broadcast(number, read(model, sharing)), state)
        for number, state in enumerate(states, 1)
    ]


@pytest.mark.parametrize("adopt", [True, False])
def test_running_statistics_and_counters_of_a_body_stay_and_are_kept_between_rounds(adopt: bool) -> None:
    model, sharing = network(), Head(adopt=adopt)
    (first,) = learn(model, sharing, [EMPTY])
    assert first.reply.message.mean.shape == (9,)
    assert first.reply.message.variance is None
    assert first.state["body.1.num_batches_tracked"] == 2
    assert bool((first.state["body.1.running_mean"] != 0).all())
    again, other = learn(model, sharing, [first.state, EMPTY])
    assert again.state["body.1.num_batches_tracked"] == 4
    for name in ("running_mean", "running_var"):
        assert not torch.equal(again.state[f"body.1.{name}"], first.state[f"body.1.{name}"])
    assert other.state["body.1.num_batches_tracked"] == 2, "a client that begins has nothing of another's"


def test_a_body_comes_back_to_the_last_bit() -> None:
    model, sharing = network(), Head(adopt=False)
    (first,) = learn(model, sharing, [EMPTY])
    fresh = network(5)
    sharing.write(tensors_of(fresh), sharing.layout(fresh), read(model), first.state)
    assert values(sharing.keep(tensors_of(fresh), sharing.layout(fresh))) == values(first.state)
