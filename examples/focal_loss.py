"""A loss of your own: most tumours are benign here, and the rare malignant ones must not be missed.

Any function of (outputs, targets) is a loss, and so is any loss module of torch, such as a weighted one.

python examples/focal_loss.py
"""

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import steelyard as sy

MALIGNANT, BENIGN = 0, 1


def focal(logits: Tensor, labels: Tensor) -> Tensor:
    """Focal loss (Lin et al., 2017): examples that are classified well count less."""
    nll = cross_entropy(logits, labels, reduction="none")
    return ((1 - (-nll).exp()) ** 2 * nll).mean()


x, y = load_breast_cancer(return_X_y=True)
x = StandardScaler().fit_transform(x)
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.4, stratify=y, random_state=0)
rare = np.flatnonzero(y_train == MALIGNANT)[:12]  # only twelve malignant tumours
rows = np.sort(np.concatenate([rare, np.flatnonzero(y_train == BENIGN)]))
clinics = {
    name: (x_train[rows[start::3]], y_train[rows[start::3]])
    for start, name in enumerate(["lyon", "porto", "turku"])
}


def found(logits: Tensor, labels: Tensor) -> Tensor:
    """For a metric, one number for each example: whether it is malignant and was found."""
    return ((labels == MALIGNANT) & (logits.argmax(dim=1) == MALIGNANT)).float()


losses = {
    "cross-entropy": "cross-entropy",
    "focal, own function": focal,
    "focal, by name": {"name": "focal", "gamma": 2.0},
    "weighted, of torch": nn.CrossEntropyLoss(weight=torch.tensor([10.0, 1.0])),
}
for name, loss in losses.items():
    torch.manual_seed(0)  # for the initial weights; all other randomness comes from `seed`
    model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 2))
    algorithm, test = sy.Algorithm(objective=loss), (x_test, y_test)
    federation = sy.Federation(clinics, model, algorithm, test=test, metrics={"found": found}, rounds=10)
    last = federation.run().history[-1]
    share = last["found"] / (y_test == MALIGNANT).mean()
    print(f"{name:20s} accuracy {last['accuracy']:.3f}  malignant tumours found {share:.3f}")
