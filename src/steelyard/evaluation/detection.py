"""Whether low weights tell adversaries from honest parties."""

import torch
from torch import Tensor


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
    ordered = honest.sort().values
    below = torch.searchsorted(ordered, guilty)
    not_above = torch.searchsorted(ordered, guilty, right=True)
    heavier = len(honest) - (below + not_above).double() / 2
    suspected = weights < 0.5 / len(weights)
    caught = float((suspected & adversary).sum())
    found = {
        "detection_auroc": float(heavier.mean()) / len(honest),
        "detection_recall": caught / len(guilty),
    }
    if bool(suspected.any()):
        found["detection_precision"] = caught / float(suspected.sum())
    return found
