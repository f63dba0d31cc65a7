"""steelyard with one of its engines, built from the spec and recorded as users do."""

import json
import sys
import tempfile
import time
from pathlib import Path

from contenders.setting import argument, read, say_round
from steelyard import components
from steelyard.specs.building import build
from steelyard.specs.running import recorder_for
from steelyard.specs.schema import load_spec
from steelyard.types import Round


class Stopwatch:
    """An observer that says how long each round took: the time since the round before was complete.

    That is one exchange, in which clients score a model and train from it, and what the server does. The
    first round needs two exchanges.
    """

    def __init__(self, rounds: int) -> None:
        self.rounds, self.last, self.seconds = rounds, time.perf_counter(), 0.0

    def __call__(self, round: Round) -> None:
        before, now = self.seconds, time.perf_counter()
        self.last, self.seconds = now, now - self.last
        more = {"exchanges": 2.0} if round.number == 1 else {}
        if round.number > 2:  # the exchange of a round is within the time of the round before
            more["outside"] = 1 - round.seconds["exchange"] / before
        say_round(round.number, self.seconds, round.metrics.get("accuracy"), **more)
        if round.number == self.rounds:
            sys.exit()


def main() -> None:
    setting = read(argument())
    spec = load_spec(setting.facts["spec"])
    federation = build(spec)
    federation.engine = components.build("engines", json.loads(sys.argv[2]))
    with tempfile.TemporaryDirectory() as folder:
        federation.run(Stopwatch(len(setting.cohorts)), recorder=recorder_for(spec, Path(folder)))


if __name__ == "__main__":
    main()
