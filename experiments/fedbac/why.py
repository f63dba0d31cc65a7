"""Why the published gate fails: which way honest and reversed updates lie, to the past and to each other.

Nobody is weighed down: a witness that knows who lies averages the honest clients and writes the angles down.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from steelyard.report.charts import tidy
from steelyard.report.style import DPI, FAINT, INK
from steelyard.specs.running import build
from steelyard.specs.schema import load_spec
from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing import Weigher
from steelyard.weighing.concord import coherence, towards_others
from steelyard.weighing.consensus import cosines_with
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.majority import cosines
from steelyard.weighing.steps import normalised
from studies import SHARDS, under

SIGN_FLIP = {"name": "sign-flip"}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "2 shards a client, 10 of 20 a round (MNIST)": {**SHARDS, **under(SIGN_FLIP), "rounds": 60},
    "Dirichlet(0.3), all 10 in every round (digits)": {
        "adversaries": {"count": 3, "attack": SIGN_FLIP},
        "rounds": 30,
    },
}
SIGNALS = {
    "past": "with the last step\n(published)",
    "present": "with the others\nof the round",
    "coherent": "the same, rounds\nby coherence",
}
Angles = dict[str, list[float]]
"""Of each signal, every client's mean over its rounds."""


@dataclass(frozen=True)
class Witness(Weigher):
    """Averages the honest, and notes each client's cosine with the last step and with the honest others."""

    liars: frozenset[str]

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        honest = torch.tensor([client not in self.liars for client in round.clients]).double()
        weights, last, angles = normalised(honest * round.num_examples), state.get("step"), cosines(geometry)
        evidence = {
            "present": towards_others(angles, honest),
            "past": torch.zeros_like(weights) if last is None else cosines_with(last, geometry),
            "coherence": coherence(angles, honest),
        }
        return Weighed(weights, {"step": geometry.mix(weights)}, evidence)


def measure(changes: Mapping[str, Any], seed: int) -> dict[str, Angles]:
    """{"honest" or "reversed": angles}, from the second round on."""
    federation = build(load_spec(None, {**changes, "evaluate_every": 1000, "seed": seed}))
    liars = frozenset(federation.adversaries)
    federation.aggregator = replace(federation.aggregator, weigher=Witness(liars))
    result = federation.run()
    weight = {row["round"]: float(row.get("coherence") or 0.0) for row in result.history}
    rows = [row for row in result.clients if row["round"] != 1 and row["status"] == "used"]
    found: dict[str, Angles] = {kind: {name: [] for name in SIGNALS} for kind in ("honest", "reversed")}
    for client in sorted({str(row["client"]) for row in rows}):
        mine = [row for row in rows if row["client"] == client]
        ones = [1.0] * len(mine)
        place = found["reversed" if client in liars else "honest"]
        place["past"].append(_mean([row["past"] for row in mine], ones))
        place["present"].append(_mean([row["present"] for row in mine], ones))
        place["coherent"].append(
            _mean([row["present"] for row in mine], [weight[row["round"]] for row in mine])
        )
    return found


def _mean(values: Sequence[Any], weights: Sequence[float]) -> float:
    total = sum(weights)
    return (
        sum(float(each) * weight for each, weight in zip(values, weights, strict=True)) / total
        if total
        else 0.0
    )


def draw(found: Mapping[str, Mapping[str, Angles]], path: Path) -> None:
    """A strip of dots for each signal, a dot for each client; the honest left, the reversed right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.4, 4.0), facecolor="white")
    axes = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
    for place, (setting, kinds) in zip(axes, found.items(), strict=True):
        place.axhline(0, color=FAINT, lw=0.9)
        for kind, colour, side in (("honest", "#12606c", -0.13), ("reversed", "#b3412f", 0.13)):
            for number, name in enumerate(SIGNALS):
                values = sorted(kinds[kind][name])
                shifts = [number + side + 0.03 * (rank % 3 - 1) for rank in range(len(values))]
                label = kind if number == 0 else None
                place.scatter(shifts, values, s=26, color=colour, alpha=0.8, lw=0, label=label)
        place.set_title(setting, fontsize=9, color=INK, loc="left")
        place.set_xticks(range(len(SIGNALS)), list(SIGNALS.values()))
        tidy(place)
        place.tick_params(axis="x", labelsize=8, labelcolor=INK, length=0)
    axes[0].set_ylabel("mean cosine of a client's updates", fontsize=8.5, color=FAINT)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, fontsize=8.5, loc="upper right", ncols=2, labelcolor=INK)
    figure.suptitle(
        "What tells reversed updates from honest ones?",
        x=0.01,
        ha="left",
        fontsize=11.5,
        weight="bold",
        color=INK,
    )
    figure.subplots_adjust(left=0.075, right=0.99, top=0.84, bottom=0.14, wspace=0.06)
    figure.savefig(path, dpi=DPI)
