"""How well a score separates two groups, such as adversaries from honest clients."""

import torch
from torch import Tensor


def auroc(inside: Tensor, outside: Tensor) -> float:
    """The probability that a score from `outside` exceeds a score from `inside`; ties count half.

    With the entropies of predictions on in-distribution and out-of-distribution data, it measures how well
    the model recognises unfamiliar inputs.
    """
    ordered = inside.sort().values
    smaller = torch.searchsorted(ordered, outside)
    not_larger = torch.searchsorted(ordered, outside, right=True)
    exceeded = (smaller + not_larger).double() / 2
    return float(exceeded.mean()) / len(inside)


def detection(weights: Tensor, adversary: Tensor) -> dict[str, float]:
    """How well the weights [J] of a round identify its adversaries [J] (bool). Rejected clients: weight 0.

    AUROC is the probability that an adversary has a smaller weight than an honest client; ties count half.
    Clients with less than half of an equal share, 1/(2J), are suspected: precision is the share of
    adversaries among the suspects, recall the share of suspects among the adversaries. Undefined values are
    left out: all of them without adversaries or without honest clients, and precision without suspects.
    """
    adversarial, honest = weights[adversary], weights[~adversary]
    if not len(adversarial) or not len(honest):
        return {}
    suspected = weights < 0.5 / len(weights)
    true_positives = float((suspected & adversary).sum())
    scores = {
        "detection_auroc": auroc(-honest, -adversarial),
        "detection_recall": true_positives / len(adversarial),
    }
    if bool(suspected.any()):
        scores["detection_precision"] = true_positives / float(suspected.sum())
    return scores
