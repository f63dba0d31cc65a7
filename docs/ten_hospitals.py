"""The federation in the pictures of the page: ten hospitals train on scikit-learn's digits.

    python docs/ten_hospitals.py RUN [ROUND]

turin sends its updates reversed, oslo sends NaN in rounds 3 to 9, and porto has little data. After ROUND, it
waits for a line on standard input.
"""

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn

import steelyard as sy
from steelyard.attacks import NonFinite, OnOff, SignFlip
from steelyard.types import Round
from steelyard.weighing import Majority

SIZES = {
    "basel": 1.0,
    "cork": 1.2,
    "ghent": 0.95,
    "graz": 1.1,
    "lyon": 1.5,
    "malmö": 1.0,
    "oslo": 1.1,
    "porto": 0.35,
    "turin": 1.0,
    "turku": 1.05,
}
ABOUT = "digits · 10 hospitals · turin reverses its updates, oslo sends NaN in rounds 3 to 9"


def federation() -> sy.Federation:
    inputs, labels = (torch.tensor(each) for each in load_digits(return_X_y=True))
    inputs = inputs.float() / 16
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
    test, rest = order[:360], order[360:]
    sizes = torch.tensor(list(SIZES.values()))
    ends = (sizes.cumsum(0) / sizes.sum() * len(rest)).long().tolist()
    parts = {
        name: (inputs[rest[start:end]], labels[rest[start:end]])
        for name, start, end in zip(SIZES, [0, *ends], ends, strict=False)
    }
    torch.manual_seed(0)
    return sy.Federation(
        [sy.Client(name, data, test=data) for name, data in parts.items()],
        nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)),
        sy.Algorithm(weighing=Majority(), training=sy.Training(lr=0.1)),
        test=(inputs[test], labels[test]),
        rounds=30,
        adversaries={"turin": SignFlip(), "oslo": OnOff(NonFinite(), start=3, on=7, off=100)},
    )


def main(run: str, stop: int = 0) -> None:
    def wait(round: Round) -> None:
        if round.number == stop:
            print("waiting", flush=True)
            sys.stdin.readline()

    recorder = sy.Recorder(run, meta={"name": "ten-hospitals", "about": ABOUT})
    federation().run(wait, recorder=recorder)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
