"""Whether a score tells two kinds apart: low weights adversaries from honest parties, for one."""

import torch
from torch import Tensor


def auroc(inside: Tensor, outside: Tensor) -> float:
    """The chance that one from outside has a higher score than one from inside, ties counting half.

    With the entropies of a model on known and on foreign data, how well it knows what it does not know.
    """
    ordered = inside.sort().values
    below = torch.searchsorted(ordered, outside)
    not_above = torch.searchsorted(ordered, outside, right=True)
    lower = (below + not_above).double() / 2
    return float(lower.mean()) / len(inside)


def detection(weights: Tensor, adversary: Tensor) -> dict[str, float]:
    """How well the weights [J] of a round find its adversaries [J] (bool); who was set aside has weight 0.

    AUROC is the chance that an adversary weighs less than an honest party, ties counting half. A party is
    suspected if it has less than half of an equal share, 1/(2J); precision is the part of the suspects that
    are adversaries, recall the part of the adversaries that are suspects. What has no meaning is left out:
    everything unless both kinds are there, and precision where nobody is suspected.
    """
    guilty, honest = weights[adversary], weights[~adversary]
    if not len(guilty) or not len(honest):
        return {}
    suspected = weights < 0.5 / len(weights)
    caught = float((suspected & adversary).sum())
    found = {
        "detection_auroc": auroc(-honest, -guilty),
        "detection_recall": caught / len(guilty),
    }
    if bool(suspected.any()):
        found["detection_precision"] = caught / float(suspected.sum())
    return found
