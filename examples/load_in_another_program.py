"""Load the model of a run in another program, which needs its class and the folder of the run, but no data.

python examples/load_in_another_program.py
"""

import subprocess
import sys
import tempfile
from pathlib import Path

# In your project, this is a module of its own, and other programs import it: `from my_nets import Net`.
MY_NETS = """
from torch import nn


class Net(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10))

    def forward(self, x):
        return self.layers(x)
"""

TRAIN = """
import steelyard as sy, torch
from my_nets import Net
from sklearn.datasets import load_digits

x, y = load_digits(return_X_y=True)
x = (x / 16).astype("float32")
schools = {f"school-{number}": (x[number:1200:4], y[number:1200:4]) for number in range(4)}
torch.manual_seed(0)
result = sy.Federation(schools, Net(), test=(x[1200:], y[1200:]), validation=0.1, rounds=20).run(out="runs")
print(f"trained, test accuracy {result.accuracy:.4f}, best round {result.best_round}: {result.path}")
"""

USE = """
import sys
import steelyard as sy, torch
from my_nets import Net
from sklearn.datasets import load_digits

run = sys.argv[1]
last, best = sy.load_model(run, model=Net()), sy.load_model(run, model=Net(), best=True)
x, y = map(torch.tensor, load_digits(return_X_y=True))
for name, model in (("last", last), ("best", best)):
    right = model(x[1200:].float() / 16).argmax(dim=1) == y[1200:]
    print(f"loaded, {name} model, test accuracy {right.float().mean():.4f}")
print(f"recorded, test accuracy {sy.Run(run).rounds[-1]['accuracy']:.4f}")
"""


def run(program: str, folder: str, *arguments: str) -> None:
    """Run a program in a process of its own."""
    (Path(folder) / "program.py").write_text(program)
    subprocess.run([sys.executable, "program.py", *arguments], cwd=folder, check=True)


with tempfile.TemporaryDirectory() as folder:
    (Path(folder) / "my_nets.py").write_text(MY_NETS)
    run(TRAIN, folder)
    (path,) = (Path(folder) / "runs").iterdir()
    run(USE, folder, str(path))
