"""Clients that behaved alike, found from their weights, figures and rejections."""

from collections.abc import Sequence

import numpy as np

from steelyard.verdicts.batch import Matrix
from steelyard.verdicts.tally import Tally

MAX_GROUPS = 6
MIN_GAP = 1.5  # of the distance at which groups would be merged to the next smaller one
MIN_DISTANCE = 1.0  # smaller distances, in factors of e, are chance


def group_clients(tally: Tally, clients: Sequence[int]) -> tuple[list[int], list[int]]:
    """The group of each client, the largest being 0, and the clients in an order that puts like to like."""
    if len(clients) < 3:
        return [0] * len(clients), list(range(len(clients)))
    from scipy.cluster.hierarchy import fcluster, leaves_list, linkage

    tree = linkage(behaviour(tally, clients), "average")
    count = _groups(tree[:, 2])
    labels = fcluster(tree, count, "maxclust") if count > 1 else np.ones(len(clients), int)
    by_size = sorted(set(labels.tolist()), key=lambda label: (-int((labels == label).sum()), label))
    order = leaves_list(tree).tolist()
    return [by_size.index(label) for label in labels.tolist()], order


def behaviour(tally: Tally, clients: Sequence[int]) -> Matrix:
    """What clients are compared by, in logarithms: share, each factor, and how often they were rejected."""
    invited, used, weight, _, equal = tally.totals[:, list(clients)]
    with np.errstate(divide="ignore", invalid="ignore"):
        rows = [np.log(np.clip(weight / equal, 0.02, 50.0)), 3 * (1 - used / invited)]
        for sums in tally.factors:
            rounds, ratio = sums[0, list(clients)], sums[1, list(clients)]
            rows.append(np.log(np.clip(ratio / rounds, 0.02, 50.0)))
    found: Matrix = np.nan_to_num(np.array(rows)).T
    return found


def _groups(heights: Matrix) -> int:
    """How many groups stand out: where the distance of merging falls most steeply."""
    falling = np.sort(heights)[::-1][:MAX_GROUPS]
    if len(falling) < 2 or falling[0] < MIN_DISTANCE:
        return 1
    gaps = falling[:-1] / np.maximum(falling[1:], MIN_DISTANCE / 10)
    gaps[falling[:-1] < MIN_DISTANCE] = 0.0
    best = int(gaps.argmax())
    return best + 2 if gaps[best] >= MIN_GAP else 1
