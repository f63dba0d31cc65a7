"""Weights with a width. Seven labs train a network with Gaussian weights (BA-BFL); then two of them send
nonsense and claim to be certain, which wins every merge by precision unless claims are held and weighed.

python examples/posteriors.py
"""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

import steelyard as sy
from steelyard.attacks import Gaussian, VarianceDeflation
from steelyard.client.evaluation import predict
from steelyard.combining import Rklb
from steelyard.metrics import auroc, entropy
from steelyard.objectives import Elbo
from steelyard.sharing import Posterior
from steelyard.weighing import Majority

LABS, ROUNDS = 7, 8
images, labels = load_digits(return_X_y=True)
x, x_test, y, y_test = train_test_split(images / 16, labels, test_size=0.25, random_state=0)
labs = {f"lab-{number}": (x[number::LABS], y[number::LABS]) for number in range(LABS)}
liars = dict.fromkeys(("lab-1", "lab-4"), VarianceDeflation(Gaussian(), factor=1e-6))
foreign = x_test.reshape(-1, 8, 8).transpose(0, 2, 1).reshape(-1, 64).copy()  # rows as columns: no digits

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
training = sy.Training(optimizer="adam", lr=0.005, batch_size=16, epochs=3)
posteriors = {"objective": Elbo(), "sharing": Posterior(), "training": training}


def show(way: str, model: nn.Module, algorithm: sy.Algorithm, **who: object) -> sy.Result:
    result = sy.Federation(labs, model, algorithm, test=(x_test, y_test), rounds=ROUNDS, **who).run()
    doubts = [entropy(predict(result.model, sy.examples(each, y_test))) for each in (x_test, foreign)]
    scores = {name: result.history[-1][name] for name in ("accuracy", "nll", "ece")}
    scores["AUROC against what is no digit"] = auroc(*doubts)
    print(f"{way:28s}", *(f"{name} {value:.3f} " for name, value in scores.items()))
    return result


bayesian = sy.bayesian(network, last=3, samples=30)
plain = sy.Algorithm(combining=Rklb(), **posteriors)
careful = sy.Algorithm(
    weighing=Majority(),
    combining=Rklb(variance_ratio_limit=2.0),  # no variance further than ×/÷ 2 from the median
    server=sy.Server(geometry="precision"),  # the weighing rule sees who claims too much
    **posteriors,
)
show("points, FedAvg", network, sy.Algorithm(training=training))
show("posteriors, RKLB", bayesian, plain)
show("two liars: RKLB", bayesian, plain, adversaries=liars)
result = show("two liars: held and weighed", bayesian, careful, adversaries=liars)
for row in result.clients[-LABS:]:
    print(f"  {row['client']}  weight {row['weight']:.3f}{'  lied' if row['adversary'] else ''}")
