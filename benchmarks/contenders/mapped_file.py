"""Weigh and combine a file of updates that need not fit in memory; print seconds and memory.

python -m contenders.mapped_file FILE CLIENTS SIZE RULE
"""

import json
import sys
from pathlib import Path

import numpy as np

import steelyard as sy
from contenders.turns import seconds


def main() -> None:
    path, rule = sys.argv[1], sys.argv[4]
    clients, size = int(sys.argv[2]), int(sys.argv[3])
    rows = np.memmap(path, dtype=np.float32, mode="r", shape=(clients, size))
    before = megabytes()
    weights = sy.weigh(rows[:, :1000], rule).weights
    weighing = seconds(lambda: weights.copy_(sy.weigh(rows, rule).weights))
    combining = seconds(lambda: sy.combine(rows, weights))
    print(json.dumps({"weigh": weighing, "combine": combining, "before": before, "megabytes": megabytes()}))


def megabytes() -> float:
    """Peak resident memory so far (Linux); ru_maxrss would include that of the parent process."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


if __name__ == "__main__":
    main()
