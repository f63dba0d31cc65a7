"""Federations in threads of one process, and in processes that were forked after one was run."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import nn

import steelyard as sy


def test_models_that_draw_train_in_threads_as_they_do_alone() -> None:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(90, 4, generator=draw), torch.randint(3, (90,), generator=draw)
    parts = {"oslo": (x[:30], y[:30]), "turin": (x[30:60], y[30:60])}
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))

    def trained(seed: int) -> list[float]:
        federation = sy.Federation(parts, net, test=(x[60:], y[60:]), rounds=2, seed=seed, engine="serial")
        weight: torch.Tensor = federation.run().model.get_parameter("0.weight")
        return weight.flatten().tolist()

    before, alone = torch.get_rng_state(), [trained(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as threads:
        for _ in range(2):
            assert list(threads.map(trained, range(4))) == alone
    assert torch.equal(torch.get_rng_state(), before)


FORKED = """
import os, signal
import numpy as np, torch
from torch import nn
import steelyard as sy

draw = np.random.default_rng(0)
x, y = draw.normal(size=(1000, 64)), draw.integers(3, size=1000)
net = nn.Sequential(nn.Linear(64, 400), nn.ReLU(), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 3))

def run():
    parts = {"oslo": (x[:500], y[:500]), "turin": (x[500:], y[500:])}
    federation = sy.Federation(parts, net, test=(x, y), rounds=1, engine="serial", patience=2)
    federation.run(out=f"runs-{os.getpid()}")

torch.set_num_threads(4)
run()
child = os.fork()
if not child:
    signal.alarm(50)
    run()
    os._exit(7)
os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_process_that_is_forked_after_a_serial_run_can_run_another(tmp_path: Path) -> None:
    """Torch hangs in a forked process if it has used several threads before."""
    command = [sys.executable, "-W", "ignore", "-c", FORKED]
    assert subprocess.run(command, timeout=60, check=False, cwd=tmp_path).returncode == 7
