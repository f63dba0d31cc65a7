"""steelyard with one of its engines, built from the spec and recorded as users do."""

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from torch import Tensor

from contenders.setting import argument, read, say_round
from steelyard.specs import registry
from steelyard.specs.building import build
from steelyard.specs.running import recorder_for
from steelyard.specs.schema import load_spec


class Watched:
    """A session that knows how long it has been working."""

    def __init__(self, session: Any) -> None:
        self.session, self.predicting = session, 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def predict(self, *arguments: Any) -> Tensor:
        start = time.perf_counter()
        predicted: Tensor = self.session.predict(*arguments)
        self.predicting += time.perf_counter() - start
        return predicted


def main() -> None:
    setting = read(argument())
    engine = registry.build("engines", json.loads(sys.argv[2]))
    spec = load_spec(setting.facts["spec"])
    federation = build(spec)
    state = federation.init()
    with (
        tempfile.TemporaryDirectory() as folder,
        recorder_for(spec, Path(folder)) as recorder,
        engine.open(federation.workload) as session,
    ):
        watched = Watched(session)
        for number in range(1, len(setting.cohorts) + 1):
            start, watched.predicting = time.perf_counter(), 0.0
            round, state = federation.round(state, watched)
            recorder.write(round, state)
            seconds = time.perf_counter() - start
            busy = round.seconds["train"] + watched.predicting
            say_round(number, seconds, round.metrics.get("accuracy"), outside=1 - busy / seconds)


if __name__ == "__main__":
    main()
