"""The data of one clinic: a share of scikit-learn's breast cancer data, standardised with its own figures.

At a real site, `load` reads a file of the clinic. It is called with the site's name, at the site only.
"""

import numpy as np
from sklearn.datasets import load_breast_cancer

import steelyard as sy

PATIENTS = {"lyon": slice(0, 284), "oslo": slice(284, 484), "turin": slice(484, 569)}  # unequal clinics


def load(site: str) -> sy.Client:
    inputs, labels = load_breast_cancer(return_X_y=True)  # 30 measurements; 0 malignant, 1 benign
    mine = np.random.default_rng(0).permutation(len(inputs))[PATIENTS[site]]
    inputs, labels = inputs[mine], labels[mine]
    cut = len(mine) * 4 // 5  # the last fifth is for tests
    inputs = (inputs - inputs[:cut].mean(axis=0)) / inputs[:cut].std(axis=0)
    inputs = inputs.astype("float32")
    return sy.Client(site, (inputs[:cut], labels[:cut]), (inputs[cut:], labels[cut:]))
