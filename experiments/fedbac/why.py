"""Why the published gate fails: angles of honest and reversed updates to the last step and to each other.

The weighing rule here knows the adversaries. It averages the honest clients and records the angles.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from steelyard.report.charts import tidy
from steelyard.report.style import FAINT, INK, save
from steelyard.specs.building import build
from steelyard.specs.schema import Spec, load_spec
from steelyard.types import RoundInfo, State, Weighed
from steelyard.weighing import Weigher
from steelyard.weighing.concord import coherence, towards_others
from steelyard.weighing.consensus import cosines_with
from steelyard.weighing.geometry import Geometry
from steelyard.weighing.majority import cosines
from steelyard.weighing.steps import normalised
from studies import SHARDS, data_set, small, under

SIGN_FLIP = {"name": "sign-flip"}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "2 shards a client, 10 of 20 a round": {**SHARDS, **under(SIGN_FLIP), "rounds": 60},
    "Dirichlet(0.3), all 10 in every round": {
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
"""{signal: each client's mean cosine over its rounds}."""


@dataclass(frozen=True)
class HonestMean(Weigher):
    """Average the honest clients; record each client's cosine with the last step and with honest others."""

    adversaries: frozenset[str]

    def weigh(self, geometry: Geometry, round: RoundInfo, state: State) -> Weighed:
        honest = torch.tensor([client not in self.adversaries for client in round.clients]).double()
        weights, last, angles = normalised(honest * round.num_examples), state.get("step"), cosines(geometry)
        evidence = {
            "present": towards_others(angles, honest),
            "past": torch.zeros_like(weights) if last is None else cosines_with(last, geometry),
            "coherence": coherence(angles, honest),
        }
        return Weighed(weights, {"step": geometry.mix(weights)}, evidence)


def specs(quick: bool, seed: int) -> dict[str, Spec]:
    """{title: spec} for each setting. Quick: on digits, in few rounds."""
    titled = {}
    for setting, changes in SETTINGS.items():
        rounds = {"rounds": 10} if quick else {}
        spec = load_spec(None, {**changes, "evaluate_every": 1000, "seed": seed, **rounds})
        spec = small(spec) if quick else spec
        titled[f"{setting} ({data_set(spec)})"] = spec
    return titled


def measure(spec: Spec) -> dict[str, Angles]:
    """{"honest" or "reversed": angles}, from the second round on."""
    federation = build(spec)
    adversaries = frozenset(federation.adversaries)
    federation.algorithm = replace(federation.algorithm, weighing=HonestMean(adversaries))
    result = federation.run()
    weight = {row["round"]: float(row.get("coherence") or 0.0) for row in result.history}
    rows = [row for row in result.clients if row["round"] != 1 and row["status"] == "used"]
    angles: dict[str, Angles] = {kind: {name: [] for name in SIGNALS} for kind in ("honest", "reversed")}
    for client in sorted({str(row["client"]) for row in rows}):
        own = [row for row in rows if row["client"] == client]
        ones = [1.0] * len(own)
        signals = angles["reversed" if client in adversaries else "honest"]
        signals["past"].append(_mean([row["past"] for row in own], ones))
        signals["present"].append(_mean([row["present"] for row in own], ones))
        signals["coherent"].append(
            _mean([row["present"] for row in own], [weight[row["round"]] for row in own])
        )
    return angles


def _mean(values: Sequence[Any], weights: Sequence[float]) -> float:
    total = sum(weights)
    return (
        sum(float(value) * weight for value, weight in zip(values, weights, strict=True)) / total
        if total
        else 0.0
    )


def draw(by_setting: Mapping[str, Mapping[str, Angles]], path: Path) -> None:
    """One dot per client and signal; honest clients on the left, reversed ones on the right."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.4, 4.0), facecolor="white")
    axes = figure.subplots(1, len(by_setting), squeeze=False, sharey=True)[0]
    for ax, (setting, kinds) in zip(axes, by_setting.items(), strict=True):
        ax.axhline(0, color=FAINT, lw=0.9)
        for kind, colour, side in (("honest", "#12606c", -0.13), ("reversed", "#b3412f", 0.13)):
            for number, name in enumerate(SIGNALS):
                values = sorted(kinds[kind][name])
                shifts = [number + side + 0.03 * (rank % 3 - 1) for rank in range(len(values))]
                label = kind if number == 0 else None
                ax.scatter(shifts, values, s=26, color=colour, alpha=0.8, lw=0, label=label)
        ax.set_title(setting, fontsize=9, color=INK, loc="left")
        ax.set_xticks(range(len(SIGNALS)), list(SIGNALS.values()))
        tidy(ax)
        ax.tick_params(axis="x", labelsize=8, labelcolor=INK, length=0)
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
    save(figure, path)
