"""Record a run of your own model, interrupt it, and go on: the bits are those of an unbroken run.

python examples/resume_own_model.py
"""

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import steelyard as sy

x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")


def make_federation() -> sy.Federation:
    """The same federation every time; a program that is started again makes it anew."""
    torch.manual_seed(0)  # for the initial weights; all other randomness comes from `seed`
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
    schools = {f"school-{number}": (x[number:1200:4], y[number:1200:4]) for number in range(4)}
    training = {"lr": 0.1, "momentum": 0.9, "schedule": {"name": "cosine", "warmup": 2}}
    algorithm = sy.Algorithm(training=training, weighing="majority")
    return sy.Federation(schools, model, algorithm, test=(x[1200:], y[1200:]), rounds=12)


def break_off(event: sy.RoundEvent) -> None:
    """A callback: it sees every completed round. Ctrl-C and kill -9 are no different."""
    print(f"round {event.round.number:2d}  accuracy {event.round.metrics['accuracy']:.3f}")
    if event.round.number == 5:
        raise KeyboardInterrupt


with tempfile.TemporaryDirectory() as folder:
    try:
        make_federation().run(recorder=Path(folder) / "digits", callbacks=break_off)
    except KeyboardInterrupt:
        print("interrupted")
    resumed = make_federation().resume(Path(folder) / "digits")  # another model or setting would be refused
    whole = make_federation().run()
    pairs = zip(resumed.model.parameters(), whole.model.parameters(), strict=True)
    same = all(torch.equal(one, other) for one, other in pairs)
    print(f"round {len(resumed.history)}  accuracy {resumed.accuracy:.3f}; the same bits: {same}")

    more = make_federation().resume(Path(folder) / "digits", rounds=15)  # a finished run, for more rounds
    print(f"round {len(more.history)}  test accuracy {more.accuracy:.3f}")
