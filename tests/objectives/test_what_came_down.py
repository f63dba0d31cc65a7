"""Under `Head(adopt=False)` objectives refer to the head that came down, not to the client's own."""

import torch
from torch import Tensor, nn

from steelyard.algorithm import Algorithm
from steelyard.client.learner import Learner
from steelyard.data.clients import Client
from steelyard.data.examples import examples
from steelyard.engines import Serial, Vectorized
from steelyard.nn.variational import bayesian
from steelyard.objectives import Elbo, Objective, Proximal
from steelyard.settings import Training
from steelyard.sharing import Head
from steelyard.simulation import SimulatedFederation as Federation
from steelyard.types import Broadcast, Message

STRONG = 100.0


def network(layers: int = 0) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    return bayesian(model, last=layers) if layers else model


DATA = torch.randn(12, 4, generator=torch.Generator().manual_seed(1)), torch.arange(12) % 3


def trained_head(
    objective: Objective, model: nn.Module, shared: float, own: float, posterior: bool
) -> Tensor:
    """The weights of the client's head after training, all of them `shared` at the server, `own` before."""
    sharing = Head(adopt=False, posterior=posterior)
    learner = Learner(objective, sharing, sharing.layout(model), Training(lr=0.005, steps=200), seed=0)
    working = learner.working_model(model)
    down = sharing.read(working.tensors, learner.layout)
    wide = None if down.variance is None else (down.variance > 0).float()
    message = Message(torch.full_like(down.mean, shared), wide)
    state = dict(sharing.keep(working.tensors, learner.layout))
    state |= {
        name: torch.full_like(value, own)
        for name, value in state.items()
        if name.startswith("head.") and "sigma" not in name
    }
    kept = learner.train(working, "a", examples(*DATA), Broadcast(1, message), state).state
    return next(value for name, value in kept.items() if name.startswith("head.2") and value.dim() == 2)


def test_proximal_pulls_the_head_to_the_one_that_came_down() -> None:
    head = trained_head(Proximal(mu=STRONG), network(), shared=3.0, own=-3.0, posterior=False)
    assert bool(((head - 3.0).abs() < 0.5).all())


def test_the_global_prior_is_the_posterior_that_came_down() -> None:
    objective = Elbo(prior="global", kl_weight=STRONG)
    head = trained_head(objective, network(1), shared=1.0, own=0.0, posterior=True)
    assert bool(((head - 1.0).abs() < 0.5).all())


def test_training_still_begins_from_the_clients_own_head() -> None:
    sharing, model = Head(adopt=False), network()
    learner = Learner(Proximal(mu=1.0), sharing, sharing.layout(model), Training(steps=0), seed=0)
    working = learner.working_model(model)
    state = {name: value + 1 for name, value in sharing.keep(working.tensors, learner.layout).items()}
    message = sharing.read(working.tensors, learner.layout)
    kept = learner.train(working, "a", examples(*DATA), Broadcast(1, message), state).state
    assert all(torch.equal(kept[name], value) for name, value in state.items())


def test_clients_trained_together_refer_to_it_too() -> None:
    algorithm = Algorithm(Proximal(mu=5.0), Head(adopt=False), training=Training(lr=0.1))
    clients = [Client(name, DATA) for name in "abc"]
    results = [
        Federation(clients, network(), algorithm, engine=engine, rounds=3).run()
        for engine in (Serial(), Vectorized(1))
    ]
    torch.testing.assert_close(results[0].model.weight, results[1].model.weight, rtol=1e-4, atol=1e-6)
