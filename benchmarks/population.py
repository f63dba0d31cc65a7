"""Time and memory of a round with 100 clients, drawn from populations of different sizes.

    python benchmarks/population.py

Every client has 20 of scikit-learn's digits, drawn when the client is created. Each population runs in its
own process. Prints Markdown.
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
    """Print the seconds to build, the median milliseconds of a round, and the peak memory."""
    data = digits()

    def make(name: str) -> sy.Client:
        drawn = torch.randint(len(data.train), (20,), generator=generator(0, name))
        return sy.Client(name, data.train.take(drawn))

    torch.manual_seed(0)
    start = time.perf_counter()
    population = sy.Population((f"person-{number:06d}" for number in range(count)), make)
    federation = sy.Federation(
        population, mlp((1, 8, 8), 10), test=data.test, clients_per_round=100, rounds=ROUNDS, engine=Serial()
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
