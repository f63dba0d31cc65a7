"""Several labels at once: of two digits side by side, which of the ten digits are there?

python examples/multi_label.py
"""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import steelyard as sy

digits, labels = load_digits(return_X_y=True)
digits = (digits / 16).astype("float32")


def pairs(first: int, last: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two of the digits in a range, [N, 128], and a 1 for each digit that is there, [N, 10]."""
    chosen = np.random.default_rng(seed).integers(first, last, size=(count, 2))
    there = np.zeros((count, 10), dtype=np.int64)
    for column in range(2):
        there[np.arange(count), labels[chosen[:, column]]] = 1
    return digits[chosen].reshape(count, -1), there


schools = {f"school-{number}": pairs(300 * number, 300 * number + 300, 600, number) for number in range(4)}

torch.manual_seed(0)  # for the initial weights; all other randomness comes from `seed`
model = nn.Sequential(nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10))  # ten logits, for yes or no

# The loss is found from the targets: binary cross-entropy.
federation = sy.Federation(
    schools,
    model,
    sy.Algorithm(training={"optimizer": "adam", "lr": 3e-3, "epochs": 3}),
    test=pairs(1200, 1797, 1000, 9),
    rounds=10,
)
result = federation.run()

for row in result.history:
    right, all_right = row["accuracy"], row["exact_match"]
    print(f"round {row['round']:2d}  right labels {right:.3f}  images with all ten right {all_right:.3f}")

images, there = pairs(1200, 1797, 3, 10)
with torch.inference_mode():
    probabilities = result.model(torch.from_numpy(images)).sigmoid()
for found, truth in zip(probabilities, there, strict=True):
    print("found", found.gt(0.5).nonzero().flatten().tolist(), "of", truth.nonzero()[0].tolist())
print(f"test accuracy of a label {result.accuracy:.3f}, of all ten {result.history[-1]['exact_match']:.3f}")
