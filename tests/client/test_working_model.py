"""Models that change themselves when they are called: what they change does not reach the next client."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steelyard.algorithm import Algorithm
from steelyard.client.learner import Learner
from steelyard.data.examples import examples
from steelyard.engines import Engine, Pool, Serial
from steelyard.layout import tensors_of
from steelyard.objectives import CrossEntropy
from steelyard.settings import Training
from steelyard.sharing import Head, Sharing, Trainable, WholeModel
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.types import Broadcast


class Changing(nn.Module):
    """Keeps a moving average of its inputs, as a parameter that is not trained or as a buffer."""

    def __init__(self, buffer: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 3)
        if buffer:
            self.register_buffer("average", torch.zeros(4))
        else:
            self.average = nn.Parameter(torch.zeros(4), requires_grad=False)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.training:
            self.change(inputs.mean(0))
        outputs: Tensor = self.linear(inputs + self.average)
        return outputs

    def change(self, mean: Tensor) -> None:
        raise NotImplementedError


class InPlace(Changing):
    def change(self, mean: Tensor) -> None:
        with torch.no_grad():
            self.average.mul_(0.9).add_(mean, alpha=0.1)


class ThroughData(Changing):
    def change(self, mean: Tensor) -> None:
        self.average.data.mul_(0.9).add_(mean, alpha=0.1)


class OtherData(Changing):
    def change(self, mean: Tensor) -> None:
        self.average.data = 0.9 * self.average.data + 0.1 * mean


class OtherTensor(Changing):
    def change(self, mean: Tensor) -> None:
        changed = 0.9 * self.average.detach() + 0.1 * mean
        is_parameter = isinstance(self.average, nn.Parameter)
        self.average = nn.Parameter(changed, requires_grad=False) if is_parameter else changed


MODELS: dict[str, Callable[[], Changing]] = {
    "in-place": InPlace,
    "in-place-buffer": lambda: InPlace(buffer=True),
    "through-data": ThroughData,
    "other-data": OtherData,
    "other-parameter": OtherTensor,
    "other-buffer": lambda: OtherTensor(buffer=True),
}
SHARINGS: dict[str, Sharing] = {
    "trainable": Trainable(),
    "fixed-buffers": Trainable(buffers="fixed"),
    "whole-model": WholeModel(),
    "head": Head(layer="linear"),
}


def data(seed: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(12, 4, generator=draw) + seed, torch.arange(12) % 3


@pytest.mark.parametrize("sharing", SHARINGS.values(), ids=SHARINGS)
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_client_begins_with_the_same_model_whichever_was_trained_before(
    make: Callable[[], Changing], sharing: Sharing
) -> None:
    model = make()
    layout = sharing.layout(model)
    learner = Learner(CrossEntropy(), sharing, layout, Training(lr=0.1, batch_size=4), seed=0)
    broadcast = Broadcast(1, sharing.read(tensors_of(model), layout))
    used, new = learner.working_model(model), learner.working_model(model)
    for seed in (1, 2, 3):
        learner.train(used, "oslo", examples(data(seed)), broadcast, {})
    found, wanted = (learner.train(each, "rome", examples(data(4)), broadcast, {}) for each in (used, new))
    assert torch.equal(found.reply.message.mean, wanted.reply.message.mean)
    assert float(wanted.reply.message.mean.abs().max()) > 0
    assert found.state.keys() == wanted.state.keys()
    assert all(torch.equal(found.state[name], wanted.state[name]) for name in wanted.state)
    if any(entry.name == "average" for entry in layout.entries):
        places = {entry.name: slice(entry.start, entry.stop) for entry in layout.entries}
        assert float(found.reply.message.mean[places["average"]].abs().min()) > 0, "the change travels"
    elif isinstance(sharing, Head):
        assert float(found.state["body.average"].abs().min()) > 0, "the change stays with the client"
    learner.load(used, broadcast.message, {**used.start})
    assert not bool(used.model.average.any())


@pytest.mark.parametrize("sharing", ["trainable", "whole-model", "head"])
@pytest.mark.parametrize("kind", ["in-place", "other-buffer"])
def test_a_pool_has_the_bits_of_the_serial_engine(kind: str, sharing: str) -> None:
    clients = {name: data(place) for place, name in enumerate(("lima", "oslo", "pisa", "rome"))}
    algorithm = Algorithm(sharing=SHARINGS[sharing], training=Training(lr=0.1, batch_size=4))

    def run(engine: Engine) -> Any:
        test = None if sharing == "head" else data(5)
        return Federation(clients, MODELS[kind](), algorithm, test=test, rounds=3, engine=engine).run()

    wanted, found = run(Serial()), run(Pool(workers=2))
    assert found.history == wanted.history
    pairs = zip(found.model.parameters(), wanted.model.parameters(), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def test_a_training_that_fails_leaves_nothing_to_the_next_client() -> None:
    class Failing(ThroughData):
        fails = False

        def forward(self, inputs: Tensor) -> Tensor:
            outputs = super().forward(inputs)
            if self.fails:
                raise OSError("disk on fire")
            return outputs

    model, sharing = Failing(), Trainable()
    layout = sharing.layout(model)
    learner = Learner(CrossEntropy(), sharing, layout, Training(), seed=0)
    broadcast = Broadcast(1, sharing.read(tensors_of(model), layout))
    working = learner.working_model(model)
    Failing.fails = True
    with pytest.raises(OSError, match="disk on fire"):
        learner.train(working, "oslo", examples(data(1)), broadcast, {})
    learner.load(working, broadcast.message, {})
    assert not bool(working.model.average.any())
