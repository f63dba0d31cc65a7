"""Clients that have nothing in common but the question. Three hospitals measure different things, each with a
network of its own; only the last layer is shared, and no patient, no column and no body is ever sent.

python examples/three_hospitals.py
"""

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

import steelyard as sy
from steelyard.objectives import Anchor, CrossEntropy
from steelyard.sharing import Head

x, y = load_breast_cancer(return_X_y=True)
EMBEDDING, CLASSES, ROUNDS = 16, 2, 20  # all that the hospitals agree on

# Which columns a hospital measures, how many patients it has, and the network that it believes in.
columns = {"oslo": range(12), "turin": range(8, 30), "ghent": range(3, 30, 3)}
patients = {"oslo": range(60), "turin": range(60, 400), "ghent": range(400, 569)}


def network(name: str, inputs: int) -> nn.Module:
    """A body of the hospital's own, and a head that fits the others'."""
    bodies = {
        "oslo": [nn.Linear(inputs, EMBEDDING), nn.ReLU()],
        "turin": [nn.Linear(inputs, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, EMBEDDING), nn.ReLU()],
        "ghent": [nn.Linear(inputs, 32), nn.Tanh(), nn.Linear(32, EMBEDDING), nn.Tanh()],
    }
    return nn.Sequential(*bodies[name], nn.Linear(EMBEDDING, CLASSES))


def hospital(name: str) -> sy.Client:
    rows, mine = list(patients[name]), list(columns[name])
    train, test = train_test_split(rows, test_size=0.4, stratify=y[rows], random_state=0)
    scaler = StandardScaler().fit(x[train][:, mine])  # on its own training patients, and no others
    parts = [(scaler.transform(x[part][:, mine]), y[part]) for part in (train, test)]
    torch.manual_seed(len(name) + len(mine))
    return sy.Client(name, parts[0], test=parts[1], model=network(name, len(mine)))


training = sy.Training(lr=0.05, momentum=0.9, batch_size=16)
ways = {
    "each on its own": sy.Algorithm(sharing=Head(adopt=False), objective=CrossEntropy(), training=training),
    "sharing a head": sy.Algorithm(sharing=Head(adopt=False), objective=Anchor(), training=training),
}
for way, algorithm in ways.items():
    result = sy.Federation([hospital(name) for name in columns], algorithm=algorithm, rounds=ROUNDS).run()
    last = result.history[-1]
    print(f"{way}: accuracy {last['client_accuracy']:.3f}, of the shared head {last['shared_accuracy']:.3f}")
    for row in result.clients[-len(columns) :]:
        print(f"  {row['client']:6s} accuracy {row['accuracy']:.3f}  weight {row['weight']:.2f}")
print(f"a round moves {last['bytes']:.0f} bytes; whole models would be {last['bytes_of_whole_models']:.0f}")
print(result.model_of("oslo"))
