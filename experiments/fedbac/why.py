"""Why the published gate fails: which way honest and reversed updates lie, to the past and to each other.

Nobody is weighed down: a witness that knows who lies averages the honest clients and writes the angles down.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from studies import SHARDS, under

from steelyard.experiment import build
from steelyard.geometry import Geometry
from steelyard.report.charts import tidy
from steelyard.report.look import DPI, FAINT, INK
from steelyard.spec import load_spec
from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing import Weigher
from steelyard.weighing.concord import this_round
from steelyard.weighing.consensus import cosines_with
from steelyard.weighing.majority import cosines
from steelyard.weighing.steps import normalised

SIGN_FLIP = {"name": "sign-flip"}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "2 shards a client, 10 of 20 a round (MNIST)": {**SHARDS, **under(SIGN_FLIP), "rounds": 60},
    "Dirichlet(0.3), all 10 in every round (digits)": {
        "adversaries": {"count": 3, "attack": SIGN_FLIP},
        "rounds": 30,
    },
}
Angles = dict[str, list[float]]


@dataclass(frozen=True)
class Witness(Weigher):
    """Averages the honest, and notes each client's cosine with the last step and with the others."""

    liars: frozenset[str]

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        honest = torch.tensor([client not in self.liars for client in round.clients]).double()
        weights, last = normalised(honest * round.num_examples), state.get("step")
        past = torch.zeros_like(weights) if last is None else cosines_with(last, geometry)
        now = this_round(cosines(geometry), past, honest, last is not None)
        evidence = {"present": now.present, "past": past}
        return Weighed(weights, {"step": geometry.mix(weights)}, evidence)


def measure(changes: Mapping[str, Any], seed: int) -> dict[str, Angles]:
    """{"honest" or "reversed": {"present" or "past": each client's mean over its rounds from the second}}."""
    federation = build(load_spec(None, {**changes, "evaluate_every": 1000, "seed": seed}))
    liars = frozenset(federation.adversaries)
    federation.aggregator = replace(federation.aggregator, weigher=Witness(liars))
    rows = [row for row in federation.run().clients if row["round"] != 1 and row["status"] == "used"]
    found: dict[str, Angles] = {kind: {"present": [], "past": []} for kind in ("honest", "reversed")}
    for client in sorted({str(row["client"]) for row in rows}):
        mine = [row for row in rows if row["client"] == client]
        for what in ("present", "past"):
            mean = sum(float(row[what] or 0.0) for row in mine) / len(mine)
            found["reversed" if client in liars else "honest"][what].append(mean)
    return found


def draw(found: Mapping[str, Mapping[str, Angles]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.2, 4.0), facecolor="white")
    axes = figure.subplots(1, len(found), squeeze=False)[0]
    for place, (setting, kinds) in zip(axes, found.items(), strict=True):
        for kind, colour in (("honest", "#12606c"), ("reversed", "#b3412f")):
            angles = kinds[kind]
            place.scatter(angles["present"], angles["past"], s=34, color=colour, alpha=0.85, lw=0, label=kind)
        place.axhline(0, color=FAINT, lw=0.8)
        place.axvline(0, color=FAINT, lw=0.8)
        place.set_title(setting, fontsize=9, color=INK, loc="left")
        place.set_xlabel("mean cosine with the others of the round", fontsize=8.5, color=FAINT)
        tidy(place)
    axes[0].set_ylabel("mean cosine with the last step", fontsize=8.5, color=FAINT)
    axes[0].legend(frameon=False, fontsize=8.5, labelcolor=INK, loc="best")
    title = "Agreement with the past says opposite things; agreement with the others does not"
    figure.suptitle(title, x=0.01, ha="left", fontsize=11.5, weight="bold", color=INK)
    figure.subplots_adjust(left=0.085, right=0.985, top=0.84, bottom=0.13, wspace=0.2)
    figure.savefig(path, dpi=DPI)
