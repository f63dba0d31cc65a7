"""Seven labs train a network with Gaussian weights (BA-BFL). Then two of them send random means with a tiny
variance, which dominate every merge by precision, unless variances are limited and clients are weighed.

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
adversaries = dict.fromkeys(("lab-1", "lab-4"), VarianceDeflation(Gaussian(), factor=1e-6))
foreign = x_test.reshape(-1, 8, 8).transpose(0, 2, 1).reshape(-1, 64).copy()  # transposed: not digits

torch.manual_seed(0)
network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
training = sy.Training(optimizer="adam", lr=0.005, batch_size=16, epochs=3)
posteriors = {"objective": Elbo(), "sharing": Posterior(), "training": training}


def show(title: str, model: nn.Module, algorithm: sy.Algorithm, **options: object) -> sy.Result:
    result = sy.Federation(labs, model, algorithm, test=(x_test, y_test), rounds=ROUNDS, **options).run()
    entropies = [entropy(predict(result.model, sy.examples(x, y_test))) for x in (x_test, foreign)]
    scores = {name: result.history[-1][name] for name in ("accuracy", "nll", "ece")}
    scores["AUROC against non-digits"] = auroc(*entropies)
    print(f"{title:34s}", *(f"{name} {value:.3f} " for name, value in scores.items()))
    return result


bayesian = sy.bayesian(network, last=3, samples=30)
plain = sy.Algorithm(combining=Rklb(), **posteriors)
careful = sy.Algorithm(
    weighing=Majority(),
    combining=Rklb(variance_ratio_limit=2.0),  # variances are limited to within ×/÷ 2 of the median
    server=sy.Server(geometry="precision"),  # the weighing rule sees updates times their precision
    **posteriors,
)
show("point estimates, FedAvg", network, sy.Algorithm(training=training))
show("posteriors, RKLB", bayesian, plain)
show("two adversaries: RKLB", bayesian, plain, adversaries=adversaries)
result = show("two adversaries: limited, weighed", bayesian, careful, adversaries=adversaries)
for row in result.clients[-LABS:]:
    print(f"  {row['client']}  weight {row['weight']:.3f}{'  adversary' if row['adversary'] else ''}")
