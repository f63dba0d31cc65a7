"""A federation of your own model and data: four clinics of unequal size, one of them with wrong labels.

python examples/own_model_and_data.py
"""

import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import nn

import steelyard as sy

x, y = load_breast_cancer(return_X_y=True)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.25, stratify=y, random_state=0)
scaler = StandardScaler().fit(x_train)
x_train, x_test = scaler.transform(x_train), scaler.transform(x_test)

# Each clinic has (inputs, targets) as arrays, tensors or a torch Dataset, and optionally its own test data.
cuts = {"berlin": (0, 200), "lyon": (200, 320), "porto": (320, 400), "turku": (400, 426)}
clinics = []
for name, (start, stop) in cuts.items():
    labels = 1 - y_train[start:stop] if name == "porto" else y_train[start:stop]  # porto's labels are swapped
    clinics.append(sy.Client(name, (x_train[start:stop], labels), test=(x_test, y_test)))

torch.manual_seed(0)  # for the initial weights; all other randomness comes from `seed`
model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 2))

algorithm = sy.Algorithm(
    training=sy.Training(lr=0.05, momentum=0.9, batch_size=16, epochs=2),
    server=sy.Server(clip="median"),  # no update may be longer than the median one
)
federation = sy.Federation(clinics, model, algorithm, test=(x_test, y_test), rounds=12, seed=0)
result = federation.run(
    lambda round: print(f"round {round.number:2d}  accuracy {round.metrics['accuracy']:.3f}")
)

print(f"\ntest accuracy {result.accuracy:.3f} after {len(result.history)} rounds")
for row in result.clients[-len(clinics) :]:
    print(
        f"{row['client']:7s} weight {row['weight']:.3f}  ‖update‖ {row['norm']:.2f}  "
        f"training loss {row['loss']:.3f}"
    )
print("porto's loss stays high: its labels contradict those of the others.")
