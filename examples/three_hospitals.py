"""Clients with different inputs and architectures. Three hospitals measure different columns, and each has
its own network. Only the last layer is shared; patients' data and the other layers are never sent.

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
EMBEDDING, CLASSES, ROUNDS = 16, 2, 20  # all that the hospitals must have in common

# The columns that each hospital measures, and its patients.
columns = {"oslo": range(12), "turin": range(8, 30), "ghent": range(3, 30, 3)}
patients = {"oslo": range(60), "turin": range(60, 400), "ghent": range(400, 569)}


def network(name: str, inputs: int) -> nn.Module:
    """A body of the hospital's own design, and a head of the common shape."""
    bodies = {
        "oslo": [nn.Linear(inputs, EMBEDDING), nn.ReLU()],
        "turin": [nn.Linear(inputs, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, EMBEDDING), nn.ReLU()],
        "ghent": [nn.Linear(inputs, 32), nn.Tanh(), nn.Linear(32, EMBEDDING), nn.Tanh()],
    }
    return nn.Sequential(*bodies[name], nn.Linear(EMBEDDING, CLASSES))


def hospital(name: str) -> sy.Client:
    rows, features = list(patients[name]), list(columns[name])
    train, test = train_test_split(rows, test_size=0.4, stratify=y[rows], random_state=0)
    scaler = StandardScaler().fit(x[train][:, features])  # on its own training patients only
    parts = [(scaler.transform(x[part][:, features]), y[part]) for part in (train, test)]
    torch.manual_seed(len(name) + len(features))
    return sy.Client(name, parts[0], test=parts[1], model=network(name, len(features)))


training = sy.Training(lr=0.05, momentum=0.9, batch_size=16)
algorithms = {
    "each on its own": sy.Algorithm(sharing=Head(adopt=False), objective=CrossEntropy(), training=training),
    "sharing a head": sy.Algorithm(sharing=Head(adopt=False), objective=Anchor(), training=training),
}
for title, algorithm in algorithms.items():
    result = sy.Federation([hospital(name) for name in columns], algorithm=algorithm, rounds=ROUNDS).run()
    last = result.history[-1]
    print(f"{title}: accuracy {last['client_accuracy']:.3f}, shared head {last['shared_accuracy']:.3f}")
    for row in result.clients[-len(columns) :]:
        print(f"  {row['client']:6s} accuracy {row['accuracy']:.3f}  weight {row['weight']:.2f}")
print(f"a round moves {last['bytes']:.0f} bytes; whole models would be {last['bytes_of_whole_models']:.0f}")
print(result.model_of("oslo"))
