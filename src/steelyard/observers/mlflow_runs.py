"""A run in MLflow."""

import json
import re
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from steelyard.observers.base import Tracker
from steelyard.observers.facts import RunFacts, need
from steelyard.observers.scalars import safe_name, scalars
from steelyard.types import Round

FILE = "mlflow.json"
"""In the folder of the run: the MLflow run that a resumed run goes on with."""
MAX_METRICS, MAX_PARAMETERS = 1000, 100  # in one call
STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}


class MLflow(Tracker):
    """Metrics, wall times, weight and score of each client by round, the settings, and the report at the end.

    Each round is one call to the server. Of a round with more than 200 clients, the first 200 are logged.
    Characters of names that MLflow does not allow are replaced, and a hash keeps the names distinct. NaN and
    infinity are left out. A resumed run goes on with the same MLflow run.
    """

    def __init__(self, tracking_uri: str | None = None, experiment: str = "steelyard") -> None:
        """`tracking_uri` is by default what MLflow itself is set to (`MLFLOW_TRACKING_URI`)."""
        need("mlflow", "mlflow")
        self.tracking_uri, self.experiment = tracking_uri, experiment
        self.run_id = ""
        self._client: Any = None  # not MLflow's functions, which would change its active run
        self._folder: Path | None = None
        self._logged = 0

    def begin(self, facts: RunFacts) -> None:
        from mlflow import MlflowClient

        self._client, self._folder, self._logged = MlflowClient(self.tracking_uri), facts.folder, 0
        known = None if facts.after is None else _known_run(facts.folder)
        if known is not None:
            self.run_id = known
            self._client.update_run(known, status="RUNNING")
            history = self._client.get_metric_history(known, "used")  # MLflow would keep both of two values
            self._logged = max((metric.step for metric in history), default=0)
            return
        self.run_id = self._client.create_run(self._experiment_id(), run_name=facts.name).info.run_id
        if facts.folder is not None:
            (facts.folder / FILE).write_text(json.dumps({"run_id": self.run_id}) + "\n", "utf-8")
            self._client.set_tag(self.run_id, "steelyard.folder", str(facts.folder))
        self._log_parameters(facts)

    def __call__(self, round: Round) -> None:
        from mlflow.entities import Metric

        if round.number <= self._logged:
            return
        now = int(1000 * time.time())
        metrics = [Metric(key, value, now, round.number) for key, value in scalars(round).items()]
        for start in range(0, len(metrics), MAX_METRICS):
            self._client.log_batch(self.run_id, metrics=metrics[start : start + MAX_METRICS])

    def end(self, status: str) -> None:
        try:
            if self._folder is not None:
                self._log_report(self._folder)
        finally:
            self._client.set_terminated(self.run_id, STATUS[status])

    def _experiment_id(self) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(self.experiment)
        if found is None:
            try:
                return str(self._client.create_experiment(self.experiment))
            except MlflowException:  # made by another run, just now
                found = self._client.get_experiment_by_name(self.experiment)
                if found is None:
                    raise
        return str(found.experiment_id)

    def _log_parameters(self, facts: RunFacts) -> None:
        from mlflow.entities import Param

        values = {"rounds": facts.rounds, **facts.parameters}
        params = [Param(safe_name(key), str(value)[:6000]) for key, value in values.items()]
        for start in range(0, len(params), MAX_PARAMETERS):
            self._client.log_batch(self.run_id, params=params[start : start + MAX_PARAMETERS])

    def _log_report(self, run: Path) -> None:
        from steelyard.page.report import write_report

        with TemporaryDirectory() as folder:
            self._client.log_artifact(self.run_id, str(write_report([run], Path(folder, "report.html"))))


def _known_run(folder: Path | None) -> str | None:
    """The id of the MLflow run that belongs to a folder; None if there is none."""
    try:
        found = json.loads((folder / FILE).read_text("utf-8"))["run_id"] if folder else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found if isinstance(found, str) and re.fullmatch(r"[\w-]+", found) else None
