"""What a population costs: 100 clients of many train in each round.

    python benchmarks/population.py

Every client holds 20 of scikit-learn's digits, drawn when the client is made. Each population runs in a
process of its own. Prints Markdown.
"""

import resource
import statistics
import subprocess
import sys
import time

import torch

import steelyard as sy
from steelyard.data.digits import digits
from steelyard.engines import Serial
from steelyard.nn.zoo import mlp
from steelyard.seeds import generator

ROUNDS = 10


def measure(count: int) -> None:
    """Seconds to build, median milliseconds of a round, and the most memory that was in use."""
    data = digits()

    def make(name: str) -> sy.Client:
        drawn = torch.randint(len(data.train), (20,), generator=generator(0, name))
        return sy.Client(name, data.train.take(drawn))

    torch.manual_seed(0)
    start = time.perf_counter()
    people = sy.Population((f"person-{number:06d}" for number in range(count)), make)
    federation = sy.Federation(
        people, mlp((1, 8, 8), 10), test=data.test, clients_per_round=100, rounds=ROUNDS, engine=Serial()
    )
    built = time.perf_counter() - start
    result = federation.run(lambda round: times.append(sum(round.seconds.values())))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cells = (f"{count:,}", f"{built:.2f}", f"{1000 * statistics.median(times):.1f}", f"{peak:.0f}")
    print(f"| {' | '.join(cells)} | {result.accuracy:.3f} |")


times: list[float] = []

if __name__ == "__main__":
    if len(sys.argv) > 1:
        measure(int(sys.argv[1]))
    else:
        print(
            "| clients | built in, s | a round, ms | most memory, MB | accuracy |\n|---|---|---|---|---|",
            flush=True,
        )
        for count in (100, 1_000, 10_000, 100_000):
            subprocess.run([sys.executable, __file__, str(count)], check=True)
