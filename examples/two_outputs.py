"""Regression with two outputs: length and width of an iris' petals, from its sepals, at three gardens.

python examples/two_outputs.py
"""

import torch
from sklearn.datasets import load_iris
from torch import nn

import steelyard as sy

flowers = load_iris(as_frame=True).frame.drop(columns="target").sample(frac=1, random_state=0)
flowers.columns = ["sepal_length", "sepal_width", "petal_length", "petal_width"]
petals = ["petal_length", "petal_width"]
train, test = flowers[:114], flowers[114:]

gardens = [
    sy.Client(name, train[start::3], target=petals)  # all other columns are inputs
    for start, name in enumerate(["kew", "leiden", "uppsala"])
]

torch.manual_seed(0)  # for the initial weights; all other randomness comes from `seed`
model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))

federation = sy.Federation(
    gardens,
    model,
    sy.Algorithm(training={"lr": 0.05, "batch_size": 16, "epochs": 2}),  # the loss is found: squared error
    test=(test, petals),
    rounds=30,
)
result = federation.run()

for row in result.history[4::5]:
    print(f"round {row['round']:2d}  mean squared error {row['mse']:.3f} cm²  R² {row['r2']:.3f}")

inputs = torch.tensor(test.drop(columns=petals).to_numpy(), dtype=torch.float32)
with torch.inference_mode():
    found = result.model(inputs[:3])
for (length, width), truth in zip(found, test[petals].to_numpy(), strict=False):
    print(f"{length:.1f} cm × {width:.1f} cm, measured {truth[0]:.1f} cm × {truth[1]:.1f} cm")
print(f"test R² {result.history[-1]['r2']:.3f}")
