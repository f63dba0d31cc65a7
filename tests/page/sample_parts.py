"""The parts of a made-up run: weights, evidence, clients, metrics, calibration."""

import math
import random
from typing import Any

REASONS = ["sent a mean that is not finite", "<img src=x onerror=\"window.hacked='reason'\"> is too long"]


def column_of(
    draw: random.Random, clients: int, hostile: set[int], number: int
) -> list[tuple[float | None, int]]:
    """Weight (None: absent) and rejections of every client in one round."""
    absent = {index for index in range(clients) if clients > 3 and draw.random() < 0.06}
    refused = {index for index in hostile - absent if draw.random() < min(0.9, 0.1 + number / 20)}
    raw = [
        0.0 if index in refused else (0.2 if index in hostile else 1.0) * (0.4 + draw.random())
        for index in range(clients)
    ]
    total = sum(value for index, value in enumerate(raw) if index not in absent) or 1.0
    return [
        (None if index in absent else round(value / total, 6), int(index in refused))
        for index, value in enumerate(raw)
    ]


def evidence_of(
    draw: random.Random, weights: list[list[float | None]], measure: str, every: int
) -> list[dict[str, Any]]:
    def values(level: float, slope: float, step: int = 1) -> list[list[float | None]]:
        return [
            [
                None
                if weight is None or (number + 1) % step
                else round(level + slope * (1 - math.exp(-number / 8)) + 0.04 * draw.random(), 4)
                for weight in column
            ]
            for number, column in enumerate(weights)
        ]

    return [
        {"name": "agreement", "label": "agreement with the majority", "values": values(0.3, 0.5)},
        {"name": "norm", "label": "length of the update", "values": values(2.0, -1.4)},
        {
            "name": measure,
            "label": f"{measure} on the client's own test data",
            "values": values(0.4, 0.5, every),
        },
    ]


def people_of(
    ids: list[str],
    hostile: set[int],
    adversaries: int,
    weights: list[list[float | None]],
    rejected: list[list[int]],
    scores: list[list[float | None]],
) -> list[dict[str, Any]]:
    people = []
    for index, name in enumerate(ids):
        own = [column[index] for column in weights if column[index] is not None]
        refused = sum(column[index] for column in rejected)
        share = round(sum(own) / len(own), 4) if own else None
        equal = 1 / len(ids)
        why = (
            f"its update was rejected in {refused} rounds: {REASONS[index % 2]}"
            if refused
            else "its update agreed with most others"
        )
        text = f"{name} counted for {100 * (share or 0):.1f} % (equal share {100 * equal:.1f} %): {why}."
        people.append(
            {
                "id": name,
                "verdict": text,
                "share": share,
                "equal": equal,
                "samples": 100 + 7 * index,
                "rounds": len(own),
                "used": len(own) - refused,
                "rejected": refused,
                "score": next(
                    (column[index] for column in reversed(scores) if column[index] is not None), None
                ),
                "adversary": index in hostile if adversaries else None,
                "group": int(index in hostile),
            }
        )
    return people


def metrics_of(
    draw: random.Random, rounds: int, measure: str, attacked: bool, posterior: bool, every: int
) -> dict[str, list[float | None]]:
    def curve(start: float, end: float, step: int = 1) -> list[float | None]:
        return [
            None
            if (number + 1) % step
            else round(end + (start - end) * math.exp(-number / (1 + rounds / 6)) + 0.008 * draw.random(), 4)
            for number in range(rounds)
        ]

    metrics = {measure: curve(0.3, 0.94, every)}
    if measure == "accuracy":
        metrics |= {name: curve(1.9, 0.2, every) for name in ("nll", "brier")}
        metrics |= {"ece": curve(0.2, 0.02, every), "ece_scaled": curve(0.1, 0.015, every)}
    else:
        metrics |= {"r2": curve(0.0, 0.9, every)}
    metrics |= {
        "loss": curve(2.0, 0.1),
        f"client_{measure}": curve(0.3, 0.93, every),
        f"client_{measure}_worst10": curve(0.2, 0.88, every),
        f"client_{measure}_sd": curve(0.1, 0.03, every),
        "effective_clients": curve(9.0, 7.0),
        "used": [float(draw.randrange(7, 10)) for _ in range(rounds)],
        "rejected": [float(draw.randrange(0, 3)) for _ in range(rounds)],
        "bytes": [1_204_000.0] * rounds,
        "bytes_of_whole_models": [4_816_000.0] * rounds,
    }
    if attacked:
        metrics |= {f"detection_{name}": curve(0.5, 0.97) for name in ("auroc", "precision", "recall")}
    if posterior:
        metrics |= {
            f"sigma.{name}": curve(0.1, end)
            for name, end in (("body.0", 0.05), ("body.2", 0.03), ("head", 0.01))
        }
    return metrics


def calibration_of(draw: random.Random, rounds: int) -> dict[str, Any]:
    bins = []
    for number in range(15):
        low, high = number / 15, (number + 1) / 15
        middle = (low + high) / 2
        count = round(4 + 300 * middle**4) if number > 2 else 0
        accuracy = round(min(1.0, max(0.0, middle - 0.06 + 0.08 * draw.random())), 3)
        bins.append(
            {
                "low": low,
                "high": high,
                "count": count,
                "confidence": middle,
                "accuracy": accuracy if count else None,
            }
        )
    return {"title": f"On the test set after round {rounds}", "ece": 0.021, "bins": bins}
