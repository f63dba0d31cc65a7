"""Tables of pandas, with names for the columns and for the target: three clinics that test for breast cancer.

python examples/pandas_table.py
"""

import pandas as pd
import torch
from sklearn.datasets import load_breast_cancer
from torch import nn

import steelyard as sy

table = load_breast_cancer(as_frame=True).frame.sample(frac=1, random_state=0)  # 30 columns and "target"
train, test = table[:426], table[426:]

# Scale by what is normal at all clinics; each clinic could do the same with numbers that they agreed on.
measured = train.columns.drop("target")
mean, deviation = train[measured].mean(), train[measured].std()


def scaled(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(**(frame[measured] - mean) / deviation)


clinics = {
    "lyon": (scaled(train[:200]), "target"),
    "porto": (scaled(train[200:330]), "target"),
    # The order of columns does not matter: they are matched by name, and one that is missing is an error.
    "turku": (scaled(train[330:])[["target", *reversed(measured)]], "target"),
}

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(len(measured), 16), nn.ReLU(), nn.Linear(16, 2))
federation = sy.Federation(clinics, model, test=(scaled(test), "target"), rounds=10)
result = federation.run()

rounds = result.to_pandas()  # a frame again: a row for each round
print(rounds[["round", "loss", "accuracy", "nll"]].round(3).to_string(index=False))
print(f"test accuracy {result.accuracy:.3f}")
