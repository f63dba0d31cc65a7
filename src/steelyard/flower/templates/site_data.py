"""The data of one site. This file runs at the site (`--data site_data:load`); nothing in it is sent anywhere.

As it is, each site takes its share of scikit-learn's digits, so that the deployment can be tried at once.
Replace the body of `load` by code that reads your own data.
"""

from sklearn.datasets import load_digits

import steelyard as sy

SITES = "@NAMES@".split(", ")


def load(site: str) -> sy.Client:
    """Training and test examples: inputs [N, 64] as floats, class numbers [N]."""
    inputs, labels = load_digits(return_X_y=True)
    inputs = (inputs / 16).astype("float32")
    mine = slice(SITES.index(site), None, len(SITES))
    inputs, labels = inputs[mine], labels[mine]
    cut = len(inputs) * 4 // 5
    return sy.Client(site, (inputs[:cut], labels[:cut]), (inputs[cut:], labels[cut:]))
