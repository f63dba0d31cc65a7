"""Everything that the page shows of one run, read from its record; a run that goes on is read bit by bit."""

from collections.abc import Sequence
from pathlib import Path

from steelyard.page.bins import bin_note, bin_ranges
from steelyard.page.fields import (
    MAX_CLIENTS,
    calibration_json,
    client_json,
    column_labels,
    cut,
    environment_json,
    extremes,
    group_name,
    omitted,
    short,
    whole_number,
)
from steelyard.page.groups import group_clients
from steelyard.page.headline import facts, headline
from steelyard.page.series import LABELS, Cells, Evidence, Json, RoundSeries, evidence_columns
from steelyard.runs.folder import ENVIRONMENT, SPEC
from steelyard.runs.reader import Run
from steelyard.runs.summary import describe_spec
from steelyard.verdicts.batch import Batch
from steelyard.verdicts.sentences import verdicts
from steelyard.verdicts.tally import Tally

MEASURES = {"accuracy": "higher", "mse": "lower", "test_loss": "lower"}


class RunPage:
    """The page's data of one run. `read` takes in what is new in the record."""

    def __init__(self, path: Path, live: bool = False, share: int = 1) -> None:
        """`share` is the number of runs on the page, which have to share its size."""
        self.run, self.live, self.runs_on_page = Run(path), live, share
        self._restart()

    def _restart(self) -> None:
        """Forget all rounds; the next `read` begins with the first one."""
        self.meta, self.last = self.run.meta, 0
        self.reasons = self.run.reasons
        self.found = self.run.client_columns()
        ids = self.run.client_ids()
        self.tally = Tally(self.reasons, self.run.own_metrics)
        self.tally.names.clients.update({name: place for place, name in enumerate(ids)})
        self.chosen: list[int] | None = list(range(len(ids))) if len(ids) <= MAX_CLIENTS else None
        shown = min(len(ids), MAX_CLIENTS)
        self.cells = Cells(shown * self.runs_on_page)
        columns = evidence_columns(self.found, column_labels(self.reasons))
        self.evidence = Evidence(shown * self.runs_on_page, columns)
        self.rounds, self.seconds = RoundSeries(), RoundSeries()
        self.is_new = True
        """Whether changes cannot be told, because all has been read again."""

    def read(self) -> bool:
        """Take in new rounds; returns whether anything has changed."""
        before, self.meta = self.meta, self.run.meta
        last = self.run.last_round(complete=self.live and self.meta.get("status") == "running")
        rewound = self.meta.get("writer") != before.get("writer") or last < self.last
        if rewound or self.meta.get("reasons") != before.get("reasons") or self._has_new_names():
            self._restart()
            self.meta = self.run.meta
        if last > self.last:
            self._add_rounds(last)
            return True
        return self.is_new or self.meta != before

    def _has_new_names(self) -> bool:
        known = self.tally.names.clients
        new = any(name not in known for name in self.run.client_ids(after=self.last))
        return new or self.run.client_columns() != self.found

    def _add_rounds(self, last: int) -> None:
        widths = self._widths()
        if self.chosen is None:  # those to show are chosen by their shares, so all rounds are read twice
            for batch in self.run.batches(self.tally.names, self.last, last):
                self.tally.add(batch)
            self.chosen = extremes(self.tally)
            for batch in self.run.batches(self.tally.names, self.last, last):
                self._add_series(batch, self.chosen)
        else:
            for batch in self.run.batches(self.tally.names, self.last, last):
                self.tally.add(batch)
                self._add_series(batch, self.chosen)
        self.rounds.add(self.run.rows("rounds", self.last, last))
        self.seconds.add(self.run.rows("timings", self.last, last))
        self.is_new = self.is_new or self._widths() != widths
        self.last = last

    def _widths(self) -> tuple[int, ...]:
        evidence = self.evidence.first
        return self.cells.weight.width, evidence.width if evidence else 1, self.rounds.binned.width

    def _add_series(self, batch: Batch, chosen: Sequence[int]) -> None:
        self.cells.add(batch, chosen)
        self.evidence.add(batch, chosen)

    def fields(self) -> Json:
        """All of the run but the series."""
        spec, meta = self.run.spec, self.meta
        found = list(verdicts(self.tally).values())
        chosen = range(len(found)) if self.chosen is None else self.chosen
        shown = [found[place] for place in chosen]
        groups, order = group_clients(self.tally, chosen) if self.last else ([0] * len(shown), [])
        measure = next((name for name in MEASURES if name in self.found), None)
        rule = spec.get("weighing", {}).get("name") or meta.get("rule") or "an unknown rule"
        status = meta.get("status", "not started")
        return {
            "key": self.run.path.name,
            "name": meta.get("name", self.run.path.name),
            "about": meta.get("about") or describe_spec(spec),
            "path": str(self.run.path),
            "status": status,
            **{
                name: meta.get(name) for name in ("error", "warning", "started", "ended", "engine", "version")
            },
            "seed": spec.get("seed"),
            "planned": whole_number(meta.get("rounds")) or spec.get("rounds"),
            "done": self.last,
            "seconds": short(float(self.seconds.binned.sums.sum())),
            "rule": rule,
            "headline": headline(self.rounds, self.last, len(found), rule, status),
            "facts": facts(self.rounds, self.seconds, len(found)),
            "measure": None
            if measure is None
            else {"name": measure, "label": LABELS[measure], "better": MEASURES[measure]},
            "clients": [client_json(each, group) for each, group in zip(shown, groups, strict=True)],
            "omitted": None if len(shown) == len(found) else omitted(len(shown), len(found)),
            "groups": [group_name(number) for number in range(max(groups, default=0) + 1)],
            "group_order": order,
            "reasons": [cut(kind) for kind in self.tally.names.kinds],
            "calibration": calibration_json(meta.get("calibration")),
        }

    def json(self) -> Json:
        """All of the run, as the page needs it."""
        self.is_new = False
        self._clean()
        return {
            **self.fields(),
            **self._origin(),
            "cells": self.cells.json(self.last),
            "evidence": self.evidence.json(self.last),
            "rounds": self._rounds(0),
        }

    def changes(self) -> Json:
        """What has changed since `json` or the last `changes`."""
        weight, first, binned = self.cells.weight, self.evidence.first, self.rounds.binned
        found: Json = {"fields": self.fields()}
        if weight.changed_from < len(weight):
            cells = self.cells.json(self.last, weight.changed_from)
            found["cells"] = {"from": weight.changed_from, **cells}
        if first is not None and first.changed_from < len(first):
            tail = self.evidence.tail(self.last, first.changed_from)
            found["evidence"] = {"from": first.changed_from, **tail}
        if binned.changed_from < len(binned):
            found["rounds"] = {"from": binned.changed_from, **self._rounds(binned.changed_from)}
        self._clean()
        return found

    def _clean(self) -> None:
        evidence = [binned for _, _, binned in self.evidence.columns]
        for binned in (
            self.cells.weight,
            self.cells.rejected,
            *evidence,
            self.rounds.binned,
            self.seconds.binned,
        ):
            binned.clean()

    def _rounds(self, start: int) -> Json:
        binned = self.rounds.binned
        return {
            "bins": bin_ranges(len(binned), binned.width, self.last, start),
            "note": bin_note(binned.width, self.last),
            "metrics": self.rounds.columns(start),
            "seconds": self.seconds.columns(start),
        }

    def _origin(self) -> Json:
        """Where the run comes from, and how to repeat it."""
        path = self.run.path
        has_spec = (path / SPEC).is_file()
        return {
            "spec": (path / SPEC).read_text("utf-8", "replace") if has_spec else None,
            "environment": environment_json(path / ENVIRONMENT),
            "command": f"steelyard run {path / SPEC}" if has_spec else None,
        }
